//! What stacks say of why a thread waits.

use super::*;

#[track_caller]
fn is(expected: Reason, call: &str, functions: &str) {
    let functions: Vec<&str> = functions.split_ascii_whitespace().collect();
    assert_eq!(reason(&functions, call), expected, "{call}: {functions:?}");
}

/// The stacks are of Linux 6.18, with ext4.
#[test]
fn what_a_stack_waits_for() {
    is(
        Reason::DiskRead,
        "pread64",
        "__schedule schedule io_schedule folio_wait_bit_common filemap_update_page filemap_get_pages \
         filemap_read vfs_read __x64_sys_pread64 do_syscall_64",
    );
    is(
        Reason::DiskRead,
        "sendfile",
        "__schedule schedule io_schedule folio_wait_bit_common filemap_get_pages filemap_splice_read \
         splice_direct_to_actor do_splice_direct do_sendfile do_syscall_64",
    );
    is(
        Reason::DiskRead,
        "page fault",
        "__schedule schedule io_schedule folio_wait_bit_common filemap_fault __do_fault do_fault \
         handle_mm_fault do_user_addr_fault exc_page_fault",
    );
    is(
        Reason::Metadata,
        "openat",
        "__schedule schedule io_schedule bit_wait_io __wait_on_bit out_of_line_wait_on_bit ext4_read_bh \
         ext4_bread __ext4_read_dirblock ext4_dx_find_entry __ext4_find_entry ext4_lookup lookup_open path_openat",
    );
    is(
        Reason::Metadata,
        "pread64",
        "__schedule schedule io_schedule bit_wait_io __wait_on_bit __wait_on_buffer read_extent_tree_block \
         ext4_find_extent ext4_ext_map_blocks ext4_map_blocks ext4_mpage_readpages read_pages \
         page_cache_ra_unbounded filemap_get_pages filemap_read vfs_read",
    );
    is(
        Reason::Metadata,
        "openat",
        "__schedule schedule d_alloc_parallel __lookup_slow walk_component path_openat do_filp_open",
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
    is(
        Reason::Futex,
        "futex",
        "__schedule schedule futex_do_wait __futex_wait futex_wait do_futex __x64_sys_futex",
    );
    is(Reason::Events, "epoll_wait", "__schedule schedule schedule_hrtimeout_range ep_poll do_epoll_wait");
    is(Reason::Sleep, "clock_nanosleep", "__schedule schedule do_nanosleep hrtimer_nanosleep");
    is(Reason::Pipe, "read", "__schedule schedule anon_pipe_read vfs_read ksys_read");
    is(
        Reason::Network,
        "recvfrom",
        "__schedule schedule schedule_timeout wait_woken sk_wait_data tcp_recvmsg_locked tcp_recvmsg",
    );
    is(
        Reason::RemoteFileSystem,
        "read",
        "__schedule schedule request_wait_answer __fuse_simple_request fuse_do_readfolio",
    );
    is(Reason::Child, "wait4", "__schedule schedule do_wait kernel_wait4");
}

#[test]
fn without_symbols_the_call_says_what_it_can() {
    is(Reason::Futex, "futex", "");
    is(Reason::Network, "recvfrom", "");
    is(Reason::Unknown, "pread64", "");
    is(Reason::Unknown, "futex", "__schedule schedule something_new");
}
