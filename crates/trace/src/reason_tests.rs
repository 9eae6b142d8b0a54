//! The reasons of waits, from kernel stacks.

use super::*;

#[track_caller]
fn is(expected: Reason, call: &str, functions: &str) {
    let functions: Vec<&str> = functions.split_ascii_whitespace().collect();
    assert_eq!(reason(&functions, call), expected, "{call}: {functions:?}");
}

#[test]
fn what_waits_for_a_device_reads_or_writes_by_its_call() {
    is(Reason::DiskRead, "read", "__schedule schedule io_schedule some_driver_waits");
    is(Reason::Writeback, "pwritev2", "__schedule schedule io_schedule some_driver_waits");
    is(Reason::Unknown, "write", "__schedule schedule tty_write");
    is(Reason::Unknown, "rmdir", "__schedule schedule shrink_dcache_parent");
}

/// Recorded by `flash trace` on Linux 6.18 (x86-64, ext4 without a journal): of nginx and Flash under cold load
/// with a slow disk, and of a program that waits in many ways.
#[test]
fn what_a_stack_that_was_recorded_waits_for() {
    is(
        Reason::DiskRead,
        "page fault",
        "__schedule schedule io_schedule folio_wait_bit_common filemap_fault __do_fault do_fault \
         __handle_mm_fault handle_mm_fault exc_page_fault asm_exc_page_fault",
    );
    is(
        Reason::GracePeriod,
        "accept4",
        "__schedule schedule schedule_timeout wait_for_completion synchronize_rcu_normal expand_files alloc_fd \
         __sys_accept4 __x64_sys_accept4 do_syscall_64 entry_SYSCALL_64_after_hwframe",
    );
    is(
        Reason::Child,
        "clone3",
        "__schedule schedule schedule_timeout __wait_for_common wait_for_completion_state kernel_clone \
         __do_sys_clone3 do_syscall_64 entry_SYSCALL_64_after_hwframe",
    );
    is(
        Reason::DiskRead,
        "pread64",
        "__schedule schedule io_schedule folio_wait_bit_common filemap_get_pages filemap_read vfs_read \
         __x64_sys_pread64 do_syscall_64 entry_SYSCALL_64_after_hwframe",
    );
    is(
        Reason::DiskRead,
        "read",
        "__schedule schedule io_schedule folio_wait_bit_common filemap_get_pages filemap_read vfs_read \
         ksys_read do_syscall_64 entry_SYSCALL_64_after_hwframe",
    );
    is(
        Reason::DiskRead,
        "sendfile",
        "__schedule schedule io_schedule folio_wait_bit_common filemap_get_pages filemap_splice_read \
         splice_direct_to_actor do_splice_direct do_sendfile __x64_sys_sendfile64 do_syscall_64 \
         entry_SYSCALL_64_after_hwframe",
    );
    is(
        Reason::Metadata,
        "getdents64",
        "__schedule schedule io_schedule bit_wait_io __wait_on_bit out_of_line_wait_on_bit ext4_read_bh \
         ext4_bread __ext4_read_dirblock htree_dirblock_to_tree ext4_htree_fill_tree ext4_readdir \
         iterate_dir __x64_sys_getdents64 do_syscall_64 entry_SYSCALL_64_after_hwframe",
    );
    is(
        Reason::Metadata,
        "getdents64",
        "__schedule schedule io_schedule bit_wait_io __wait_on_bit_lock out_of_line_wait_on_bit_lock \
         ext4_read_bh_lock ext4_bread __ext4_read_dirblock htree_dirblock_to_tree ext4_htree_fill_tree \
         ext4_readdir iterate_dir __x64_sys_getdents64 do_syscall_64 entry_SYSCALL_64_after_hwframe",
    );
    is(
        Reason::Metadata,
        "newfstatat",
        "__schedule schedule io_schedule bit_wait_io __wait_on_bit out_of_line_wait_on_bit \
         __ext4_get_inode_loc __ext4_get_inode_loc_noinmem __ext4_iget ext4_lookup __lookup_slow \
         walk_component link_path_walk path_lookupat filename_lookup vfs_statx vfs_fstatat \
         __do_sys_newfstatat do_syscall_64 entry_SYSCALL_64_after_hwframe",
    );
    is(
        Reason::Metadata,
        "openat",
        "__schedule schedule d_alloc_parallel path_openat do_filp_open do_sys_openat2 __x64_sys_openat \
         do_syscall_64 entry_SYSCALL_64_after_hwframe",
    );
    is(
        Reason::Metadata,
        "openat",
        "__schedule schedule io_schedule bit_wait_io __wait_on_bit out_of_line_wait_on_bit \
         __ext4_find_entry ext4_lookup path_openat do_filp_open do_sys_openat2 __x64_sys_openat \
         do_syscall_64 entry_SYSCALL_64_after_hwframe",
    );
    is(
        Reason::Metadata,
        "openat",
        "__schedule schedule io_schedule bit_wait_io __wait_on_bit out_of_line_wait_on_bit \
         __ext4_get_inode_loc __ext4_get_inode_loc_noinmem __ext4_iget ext4_lookup __lookup_slow \
         walk_component link_path_walk path_openat do_filp_open do_sys_openat2 __x64_sys_openat \
         do_syscall_64 entry_SYSCALL_64_after_hwframe",
    );
    is(
        Reason::Metadata,
        "openat",
        "__schedule schedule io_schedule bit_wait_io __wait_on_bit out_of_line_wait_on_bit \
         __ext4_get_inode_loc __ext4_get_inode_loc_noinmem __ext4_iget ext4_lookup path_openat \
         do_filp_open do_sys_openat2 __x64_sys_openat do_syscall_64 entry_SYSCALL_64_after_hwframe",
    );
    is(
        Reason::Metadata,
        "openat",
        "__schedule schedule io_schedule bit_wait_io __wait_on_bit out_of_line_wait_on_bit ext4_read_bh \
         ext4_bread __ext4_read_dirblock ext4_dx_find_entry __ext4_find_entry ext4_lookup path_openat \
         do_filp_open do_sys_openat2 __x64_sys_openat do_syscall_64 entry_SYSCALL_64_after_hwframe",
    );
    is(
        Reason::Metadata,
        "openat",
        "__schedule schedule io_schedule bit_wait_io __wait_on_bit_lock out_of_line_wait_on_bit_lock \
         __ext4_get_inode_loc __ext4_get_inode_loc_noinmem __ext4_iget ext4_lookup path_openat \
         do_filp_open do_sys_openat2 __x64_sys_openat do_syscall_64 entry_SYSCALL_64_after_hwframe",
    );
    is(
        Reason::Metadata,
        "openat2",
        "__schedule schedule io_schedule bit_wait_io __wait_on_bit out_of_line_wait_on_bit \
         __ext4_find_entry ext4_lookup __lookup_slow walk_component path_lookupat path_openat \
         do_filp_open do_sys_openat2 __x64_sys_openat2 do_syscall_64 entry_SYSCALL_64_after_hwframe",
    );
    is(
        Reason::Writeback,
        "fsync",
        "__schedule schedule io_schedule folio_wait_bit folio_wait_writeback __filemap_fdatawait_range \
         file_write_and_wait_range generic_buffers_fsync_noflush ext4_fsync_nojournal ext4_sync_file \
         do_fsync __x64_sys_fsync do_syscall_64 entry_SYSCALL_64_after_hwframe",
    );
    is(
        Reason::Writeback,
        "sync",
        "__schedule schedule wb_wait_for_completion sync_inodes_sb __iterate_supers ksys_sync \
         __x64_sys_sync do_syscall_64 entry_SYSCALL_64_after_hwframe",
    );
    is(
        Reason::Futex,
        "futex",
        "__schedule schedule futex_do_wait __futex_wait futex_wait do_futex __x64_sys_futex do_syscall_64 \
         entry_SYSCALL_64_after_hwframe",
    );
    is(
        Reason::Sleep,
        "clock_nanosleep",
        "__schedule schedule do_nanosleep hrtimer_nanosleep common_nsleep_timens \
         __x64_sys_clock_nanosleep do_syscall_64 entry_SYSCALL_64_after_hwframe",
    );
    is(
        Reason::Pipe,
        "read",
        "__schedule schedule anon_pipe_read vfs_read ksys_read do_syscall_64 \
         entry_SYSCALL_64_after_hwframe",
    );
    is(
        Reason::Network,
        "recvfrom",
        "__schedule schedule schedule_timeout wait_woken sk_wait_data tcp_recvmsg_locked tcp_recvmsg \
         sock_recvmsg __sys_recvfrom __x64_sys_recvfrom do_syscall_64 entry_SYSCALL_64_after_hwframe",
    );
    is(
        Reason::Network,
        "recvmsg",
        "__schedule schedule schedule_timeout __skb_wait_for_more_packets __unix_dgram_recvmsg \
         sock_recvmsg ____sys_recvmsg ___sys_recvmsg __sys_recvmsg do_syscall_64 \
         entry_SYSCALL_64_after_hwframe",
    );
    is(
        Reason::Child,
        "wait4",
        "__schedule schedule do_wait kernel_wait4 do_syscall_64 entry_SYSCALL_64_after_hwframe",
    );
    is(
        Reason::Events,
        "poll",
        "__schedule schedule schedule_hrtimeout_range_clock poll_schedule_timeout do_sys_poll \
         __x64_sys_poll do_syscall_64 entry_SYSCALL_64_after_hwframe",
    );
}

/// Written by hand from the kernel's sources, as these waits are hard to bring about: not whole, and of no one
/// release.
#[test]
fn what_a_stack_that_was_made_up_waits_for() {
    is(
        Reason::Metadata,
        "pread64",
        "__schedule schedule io_schedule bit_wait_io __wait_on_bit __wait_on_buffer read_extent_tree_block \
         ext4_find_extent ext4_ext_map_blocks ext4_map_blocks ext4_mpage_readpages read_pages \
         page_cache_ra_unbounded filemap_get_pages filemap_read vfs_read",
    );
    is(
        Reason::Lock,
        "openat",
        "__schedule schedule schedule_preempt_disabled rwsem_down_read_slowpath down_read walk_component \
         path_openat do_filp_open",
    );
    is(
        Reason::DiskQueue,
        "pread64",
        "__schedule schedule io_schedule blk_mq_get_tag __blk_mq_alloc_requests blk_mq_submit_bio \
         submit_bio_noacct ext4_mpage_readpages read_pages page_cache_ra_unbounded filemap_read",
    );
    is(
        Reason::Writeback,
        "fsync",
        "__schedule schedule jbd2_log_wait_commit ext4_fsync_journal ext4_sync_file do_fsync",
    );
    is(
        Reason::MemoryReclaim,
        "pread64",
        "__schedule schedule_timeout reclaim_throttle shrink_node do_try_to_free_pages \
         try_to_free_mem_cgroup_pages charge_memcg filemap_add_folio page_cache_ra_unbounded filemap_read",
    );
    is(Reason::Events, "epoll_wait", "__schedule schedule schedule_hrtimeout_range ep_poll do_epoll_wait");
    is(
        Reason::RemoteFileSystem,
        "read",
        "__schedule schedule request_wait_answer __fuse_simple_request fuse_do_readfolio",
    );
}

#[test]
fn without_symbols_the_call_says_what_it_can() {
    is(Reason::Futex, "futex", "");
    is(Reason::Network, "recvfrom", "");
    is(Reason::Unknown, "pread64", "");
    is(Reason::Unknown, "futex", "__schedule schedule something_new");
}

/// ext4 with a journal and relatime: the read itself finds all of it in memory.
#[test]
fn noting_the_access_time_of_a_file_that_is_read_is_told_from_writing() {
    let read = "__schedule schedule wait_transaction_locked add_transaction_credits start_this_handle \
        jbd2__journal_start __ext4_journal_start_sb ext4_dirty_inode __mark_inode_dirty generic_update_time \
        touch_atime filemap_read vfs_iter_read do_preadv __x64_sys_preadv2 do_syscall_64";
    is(Reason::AccessTime, "preadv2", read);
    // The one who commits it holds a lock, or the function is part of another in this kernel.
    is(Reason::AccessTime, "sendfile", "__schedule schedule __mutex_lock touch_atime splice_direct_to_actor");
    is(
        Reason::AccessTime,
        "read",
        "__schedule schedule wait_transaction_locked jbd2__journal_start vfs_read",
    );
    is(
        Reason::AccessTime,
        "pread64",
        "__schedule schedule io_schedule bit_wait generic_update_time vfs_read",
    );
    is(Reason::AccessTime, "getdents64", "__schedule schedule start_this_handle touch_atime iterate_dir");
    is(
        Reason::Writeback,
        "write",
        "__schedule schedule wait_transaction_locked add_transaction_credits start_this_handle jbd2__journal_start \
         ext4_dirty_inode __mark_inode_dirty generic_update_time file_update_time ext4_write_checks vfs_write",
    );
    is(
        Reason::MemoryReclaim,
        "read",
        "__schedule schedule start_this_handle jbd2__journal_start ext4_evict_inode evict shrink_slab \
         try_to_free_pages filemap_read vfs_read",
    );
}
