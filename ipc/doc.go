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
// [Store] writes every document in the same four steps:
//
//	openat(DIR/.tmp-RANDOM, O_WRONLY|O_CREAT|O_EXCL)  write
//	fsync(file)                                       many at once: one syncfs(HOME) for all
//	renameat2(DIR/.tmp-RANDOM, DIR/ID.json, RENAME_NOREPLACE)
//	fsync(DIR)                                        shared by all renames before it began
//
// A response becomes visible first and durable right after: the record, from
// which it can be written again, is already durable. Removals are never synced.
// A failed sync is never retried on the same file: the caller writes a new file.
package ipc
