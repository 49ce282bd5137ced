// Package ipc is how agents and host programs reach the gate: through files in
// folders. It knows where those folders are, how to read one that an untrusted
// agent writes to, and how to write a document so that it stays written.
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
// Claims and records (receipts/, records/) and keys lie outside ipc/, so that a
// mount of too much cannot erase them. [Layout.PrepareHome] and [Layout.Prepare]
// create what is missing; they never tighten a folder that somebody opened up,
// because what was put there meanwhile would then look like our own:
// [Layout.CheckPrivate] refuses it and says what to do.
//
// # Hostile folder
//
// Whatever lies in requests/ was put there by somebody we do not trust, and may
// be exchanged while we look. [Hostile] holds the folder itself, not its name,
// and reads one file in these steps:
//
//  1. openat2 the name with O_PATH, which opens nothing: no FIFO waits, no
//     device wakes. RESOLVE_BENEATH, NO_SYMLINKS, NO_MAGICLINKS and NO_XDEV
//     keep the name inside the folder and its mount.
//  2. fstat: a regular file, one link, not too large. A second link would be
//     somebody else's file; a sparse terabyte is refused by its size.
//  3. Ask /proc/self/fd whether the name that we opened still exists, once the
//     folder's lock has been free. Otherwise an agent takes a link to somebody's
//     file away between 1 and 2, and the one link counted is not in this folder.
//  4. Open that very inode for reading, through /proc/self/fd: the name plays
//     no part any more. O_NONBLOCK, because a lease would make us wait.
//  5. Read once, at most one byte more than allowed, and fstat again: a file
//     that changed meanwhile is not a document yet.
//
// Where the system has no openat2, plain openat with O_NOFOLLOW does step 1;
// where it has no /proc, step 3 is left out and step 4 opens the name again and
// compares inode and ctime. In both cases [Hostile.Note] says that this is not
// for hostile folders.
//
// # Writing
//
// [Store] writes every document in the same four steps:
//
//	openat(DIR/.tmp-RANDOM, O_WRONLY|O_CREAT|O_EXCL)  write
//	fsync(file)                                       in a crowd: one syncfs(HOME) for all
//	renameat2(DIR/.tmp-RANDOM, DIR/ID.json, RENAME_NOREPLACE)
//	fsync(DIR)                                        shared by all who renamed before it began
//
// A response is different in one point: it is visible first and durable right
// after, because the record from which it can be written again is durable
// already. Removals are never synced. A failed sync is never tried again on the
// same file: whoever needs the document writes a new one.
package ipc
