// Package ipc is the file interface between agents, host programs and the gate.
// It names the folders, reads files from a folder that an untrusted agent writes
// to, and writes documents durably.
//
// # Layout
//
// [Layout] names every folder below HOME. Everything is private to the daemon's
// user (0700), except two folders of each workspace that containers mount
// directly, past the closed HOME above them:
//
//	ipc/WORKSPACE/requests/    0777  the agent writes; mounted read-write
//	ipc/WORKSPACE/responses/   0755  the gate writes; mounted read-only
//
// Claims and records (receipts/, records/) and keys are outside ipc/, so that a
// container with too large a mount cannot erase them. [Layout.PrepareHome] and
// [Layout.Prepare] create missing folders. They never restrict a folder that is
// open to other users: files that those users added would then look like ours.
// [Layout.CheckPrivate] refuses such a folder; its error has a hint.
// [Layout.AdmitAgents] lets an agent under a UID of its own through HOME, ipc/ and
// its workspace's folder, by their access control lists.
//
// HOME/version says that the journal was created: a segment that is missing then was removed,
// and [Store.Lease] refuses to start. It is written after the segments are durable and before the
// first commit.
//
// # Hostile folder
//
// The agent writes requests/. It is untrusted, and may replace a file while we
// read it. [hostile] holds the folder's descriptor, not its name, and reads one
// file in these steps:
//
//  1. openat2 the name with O_PATH, which does not open the file itself: a FIFO
//     does not block, a device driver is not called. RESOLVE_BENEATH,
//     NO_SYMLINKS, NO_MAGICLINKS and NO_XDEV keep the name inside the folder and
//     its mount.
//  2. fstat: a regular file, one link, not too large. With a second link the
//     file could be another user's. A sparse terabyte is refused by its size.
//  3. Wait for the folder's lock, then ask /proc/self/fd whether the opened name
//     still exists. Otherwise an agent could remove a link to another user's
//     file between 1 and 2: the counted link would not be in this folder.
//  4. Open the same inode for reading, through /proc/self/fd, without the name.
//     O_NONBLOCK, because a lease would block the open.
//  5. Read once, at most one byte more than allowed, and fstat again: a file
//     that changed meanwhile is not a document yet.
//
// Without openat2, step 1 uses openat with O_NOFOLLOW. Without /proc, step 3 is
// skipped, and step 4 opens the name again and compares inode and ctime. In both
// cases [hostile.Warning] says that this is not safe for untrusted folders.
//
// # Writing
//
// [Store.Commit] is the only way to write a document. The process that holds HOME/lock
// commits to the journal (package journal): documents and audit entries that belong
// together are one commit, commits that are under way together share one write and one
// fdatasync. Then the files change, without a sync:
//
//	write(DIR/.tmp-RANDOM)                 before the commit: without space nothing is committed
//	journal: write, fdatasync              one for all commits under way
//	rename(DIR/.tmp-RANDOM, DIR/ID.json)
//	append to audit/log-N.jsonl
//
// Only a decision comes into its slot first, with RENAME_NOREPLACE: the slot says who came
// first. A document over 256 KiB is written as a durable file before its commit, which holds
// its digest. A record whose file cannot be written is kept in memory, and its file follows.
//
// [Store.Checkpoint] makes the files durable with one syncfs and moves the place where
// replay begins behind them. [Store.Lease] replays: it writes every document since that place
// again, because after a failed write the kernel may hold bytes that the disk does not. A
// valid document that differs stays: another process replaced it, such as a revoked grant.
//
// What other processes write, too (revocations, pauses, keys, redeemed receipts, and a
// decision that a host program puts into its slot), is no part of the journal: each file and
// its folder are synced. After a failed sync nothing is committed any more; a restart repairs
// the files.
package ipc
