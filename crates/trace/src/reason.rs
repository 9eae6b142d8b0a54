//! Why a call waits, by the functions of the kernel that it waits in.
//!
//! A pure function of names. The names are those of Linux 5.15 to 6.18; one that is not known any more
//! makes a reason [`Reason::Unknown`], never a wrong one.

use crate::model::Reason;

/// Frames, from the innermost, in which the primitive stands that a thread sleeps by.
const SLEEP_FRAMES: usize = 8;

/// Reasons, and the beginnings of function names that show them; the first match decides.
type Rules = &'static [(Reason, &'static str)];

/// The primitives that threads sleep by, searched in the innermost frames only: outer frames show the purpose.
const SLEEPS: Rules = &[
    (Reason::RemoteFileSystem, "fuse_ request_wait_answer nfs_ nfs4_ rpc_ cifs_ p9_"),
    (Reason::Futex, "futex_wait futex_do_wait futex_lock"),
    (
        Reason::Sleep,
        "hrtimer_nanosleep do_nanosleep do_sigtimedwait __do_sys_rt_sigsuspend sigsuspend do_pause",
    ),
    (Reason::Child, "do_wait kernel_wait4 kernel_waitid"),
    (
        Reason::Events,
        "ep_poll do_epoll_wait do_sys_poll do_poll do_select core_sys_select read_events io_cqring_wait",
    ),
    (Reason::Pipe, "pipe_read pipe_write anon_pipe_ fifo_pipe_ pipe_wait wait_for_partner splice_pipe_"),
    (
        Reason::Network,
        "sk_wait_data sk_stream_wait_ inet_csk_accept inet_csk_wait_ inet_wait_for_connect unix_stream_ \
         unix_dgram_ unix_wait_for_peer __skb_wait_for_more sock_alloc_send_pskb sock_wait_for_wmem \
         tcp_recvmsg __lock_sock",
    ),
    (
        Reason::DiskQueue,
        "blk_mq_get_tag rq_qos_wait wbt_wait blk_queue_enter __bio_queue_enter ioc_rqos_throttle iolatency_",
    ),
    (Reason::GracePeriod, "synchronize_rcu __wait_rcu_gp synchronize_srcu __synchronize_srcu rcu_barrier"),
    // These sleep for the file system with locks held or for one, and are kept apart from plain locks.
    (Reason::Metadata, "d_alloc_parallel d_wait_lookup wait_on_inode __wait_on_freeing_inode find_inode"),
    (
        Reason::Lock,
        "__mutex_lock mutex_lock rwsem_down_ down_read down_write __down percpu_rwsem_wait __percpu_down_read \
         rt_mutex_ rwbase_ flock_lock_inode_wait posix_lock_inode_wait locks_lock_inode_wait inode_dio_wait",
    ),
];

/// The purpose of a wait, searched in all frames.
const WORK: Rules = &[
    (
        Reason::MemoryReclaim,
        "try_to_free_ shrink_node shrink_lruvec shrink_folio shrink_slab shrink_many shrink_one \
         do_try_to_free_pages mem_cgroup_handle_over_high throttle_direct_reclaim reclaim_throttle \
         mem_cgroup_oom out_of_memory",
    ),
    (
        Reason::Writeback,
        "balance_dirty_pages jbd2_log_wait_commit jbd2_journal_commit wait_transaction_ start_this_handle \
         add_transaction_credits do_get_write_access folio_wait_writeback folio_wait_stable \
         wait_on_page_writeback __filemap_fdatawait filemap_fdatawait file_write_and_wait blkdev_issue_flush \
         xlog_ xfs_log_ wb_wait_for_completion sync_inodes_sb",
    ),
    (
        Reason::Metadata,
        "__wait_on_buffer wait_on_buffer __bread bdev_getblk ext4_bread ext4_sb_bread ext4_read_bh \
         ext4_get_inode_loc __ext4_get_inode_loc ext4_read_inode_bitmap ext4_read_block_bitmap \
         ext4_find_extent ext4_ext_ ext4_find_entry ext4_readdir iterate_dir xfs_buf_ xfs_iread_ xfs_dir \
         btrfs_search_slot btrfs_lookup_ read_extent_buffer read_tree_block evict truncate_inode_pages",
    ),
    (
        Reason::DiskRead,
        "filemap_read filemap_get_pages filemap_update_page filemap_fault filemap_splice_read \
         generic_file_splice_read __folio_lock folio_wait_bit page_cache_ force_page_cache_ force_page_cache \
         read_pages ondemand_readahead do_read_cache_ mpage_read ext4_mpage_readpages iomap_read iomap_dio_rw \
         __iomap_dio_rw blkdev_direct_IO __blkdev_direct_IO do_swap_page swap_read dio_await submit_bio_wait \
         wait_on_page_bit read_cache_",
    ),
    // A look-up that waits in a function without a name here is still one.
    (Reason::Metadata, "lookup_slow __lookup_slow lookup_open walk_component path_openat vfs_statx"),
    // After vfork(2), until the child executes a program.
    (Reason::Child, "kernel_clone"),
];

/// The functions that are in the stack of every wait.
const FRAME_OF_ALL: &[&str] = &["schedule", "__schedule", "io_schedule", "preempt_schedule"];

/// How the names of calls begin that are there to write.
const WRITES: &str = "write pwrite fsync fdatasync sync msync fallocate";

/// How the names of calls begin that read, and change nothing of a file but its access time.
const READS: &str = "read pread sendfile splice tee getdents";

/// By what a read changes a time of a file, and begins a transaction of the journal for it. Of these
/// `touch_atime` says by itself what it is for.
const TOUCHES: &str = "touch_atime generic_update_time inode_update_time ext4_dirty_inode jbd2__journal_start \
                       start_this_handle wait_transaction_ xfs_vn_update_time btrfs_update_time";

/// Whether it is the access time of a file that is to be noted.
fn is_access_time(functions: &[&str], call: &str) -> bool {
    let touches = if begins(call, READS) { TOUCHES } else { "touch_atime" };
    let has_one = functions.iter().any(|function| begins(function, touches));
    // Memory that is freed in a read may write anything.
    has_one && find(WORK, functions) != Some(Reason::MemoryReclaim)
}

/// The reason of a wait with these functions, the innermost first; `call` is what the thread had called.
pub(crate) fn reason(functions: &[&str], call: &str) -> Reason {
    if is_access_time(functions, call) {
        return Reason::AccessTime;
    }
    let inner = &functions[..functions.len().min(SLEEP_FRAMES)];
    if let Some(found) = find(SLEEPS, inner).or_else(|| find(WORK, functions)) {
        return found;
    }
    // For a device, and for nothing that is known here.
    if functions.contains(&"io_schedule") {
        return if begins(call, WRITES) { Reason::Writeback } else { Reason::DiskRead };
    }
    match call {
        _ if !functions.iter().all(|name| FRAME_OF_ALL.contains(name)) => Reason::Unknown,
        // Without symbols the call says what it is, where it can only be one thing.
        "futex" => Reason::Futex,
        "nanosleep" | "clock_nanosleep" | "pause" | "rt_sigsuspend" | "rt_sigtimedwait" => Reason::Sleep,
        "wait4" | "waitid" => Reason::Child,
        "recvfrom" | "recvmsg" | "sendto" | "sendmsg" | "accept" | "accept4" | "connect" => Reason::Network,
        _ => Reason::Unknown,
    }
}

fn find(rules: Rules, functions: &[&str]) -> Option<Reason> {
    let holds = |starts: &str| functions.iter().any(|function| begins(function, starts));
    rules.iter().find(|(_, starts)| holds(starts)).map(|(reason, _)| *reason)
}

/// Whether a name begins with one of these.
fn begins(name: &str, starts: &str) -> bool {
    starts.split(' ').any(|start| name.starts_with(start))
}

#[cfg(test)]
#[path = "reason_tests.rs"]
mod tests;
