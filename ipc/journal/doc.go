// Package journal is a write-ahead journal: bodies of bytes that are durable, in their order,
// with one fdatasync for all that are under way together. It knows nothing of what they mean.
//
// # Files
//
// A folder holds a few segments of the same size, created once, filled with zeros, synced,
// never renamed or grown: writing into them changes no metadata. All numbers are little
// endian. A segment begins with two copies of its header, each in a block of 4 KiB, so that
// one damaged byte does not make a segment look unused:
//
//	"permesso" version:4 nonce:16 first:8 place:8 CRC32C:4
//
// and then has groups, each at the beginning of a block, so that acknowledged bytes are never
// written again:
//
//	number:8 place:8 length:4 CRC32C:4, then the bodies: length:4 bytes
//
// The checksum of a group is over the segment's nonce, the three numbers and the bodies. The
// nonce is new at every start and every time a segment is used again: nothing of an earlier
// life verifies. Numbers grow by one. place is the number of the group where replay begins,
// the mark; every group and header repeats it, and the newest counts.
//
// # Writing
//
// A group is written only when the one before is durable. So only the last can be bad: it is
// the tail, and is dropped whole. A good group behind a bad one, or a segment that is missing
// between two, means damage: the journal is not opened. After a failed write or sync nothing
// is committed any more, and nothing is acknowledged: the next Open finds out what is durable.
//
// # Room
//
// Segments whose groups are all before the mark are free. One of them always stays free, for
// the header of the next start. New work leaves another one to outcomes.
package journal
