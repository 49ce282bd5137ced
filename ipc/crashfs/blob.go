package crashfs

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"sync/atomic"
)

// blockSize is what a device writes at once, in bytes: an overwrite that a power cut
// interrupts may leave anything in the whole block.
const blockSize = 4 << 10

// largeFile is the size in bytes from which a file is kept in blocks.
const largeFile = 32 << 10

// blob is immutable data; nil is the empty one. Disks share blobs, so its hash is
// computed at most a few times. Versions of a large file share their blocks.
type blob struct {
	b      []byte   // of a small file
	blocks [][]byte // of a large one: all of blockSize but the last
	size   int
	hash   atomic.Pointer[sum]
}

var zeroBlock [blockSize]byte

// newBlob owns b from then on.
func newBlob(b []byte) *blob {
	switch {
	case len(b) == 0:
		return nil
	case len(b) < largeFile:
		return &blob{b: b, size: len(b)}
	}
	large := &blob{size: len(b)}
	for block := range slices.Chunk(b, blockSize) {
		large.blocks = append(large.blocks, ownBlock(block))
	}
	return large
}

// ownBlock replaces a block of zeros by the one that all share.
func ownBlock(block []byte) []byte {
	if len(block) == blockSize && bytes.Equal(block, zeroBlock[:]) {
		return zeroBlock[:]
	}
	return block
}

func (b *blob) len() int {
	if b == nil {
		return 0
	}
	return b.size
}

// bytes returns the data. It must not be changed.
func (b *blob) bytes() []byte {
	switch {
	case b == nil:
		return nil
	case b.blocks == nil:
		return b.b
	}
	return slices.Concat(b.blocks...)
}

// readAt copies what is at an offset below the length.
func (b *blob) readAt(to []byte, offset int) (n int) {
	if b.blocks == nil {
		return copy(to, b.b[offset:])
	}
	for n < len(to) && offset+n < b.size {
		at := offset + n
		n += copy(to[n:], b.blocks[at/blockSize][at%blockSize:])
	}
	return n
}

// overwritten reports whether a write stays within the length.
func (b *blob) overwritten(n, offset int) bool { return offset+n <= b.len() }

// write returns the data with some bytes replaced or added. Bytes between are zeros.
func (b *blob) write(with []byte, offset int) *blob {
	if b == nil || b.blocks == nil || !b.overwritten(len(with), offset) {
		data := make([]byte, max(b.len(), offset+len(with)))
		copy(data, b.bytes())
		copy(data[offset:], with)
		return newBlob(data)
	}
	c := &blob{blocks: slices.Clone(b.blocks), size: b.size}
	for len(with) > 0 {
		i, from := offset/blockSize, offset%blockSize
		block := slices.Clone(c.blocks[i])
		n := copy(block[from:], with)
		c.blocks[i] = ownBlock(block)
		with, offset = with[n:], offset+n
	}
	return c
}

// inPlace reports whether both are large and differ only by overwrites.
func (b *blob) inPlace(o *blob) bool {
	return b != nil && o != nil && b.blocks != nil && o.blocks != nil && b.size == o.size
}

// changed returns the numbers of the blocks that differ.
func (b *blob) changed(o *blob) (list []int) {
	for i := range b.blocks {
		if &b.blocks[i][0] != &o.blocks[i][0] && !bytes.Equal(b.blocks[i], o.blocks[i]) {
			list = append(list, i)
		}
	}
	return list
}

// sum is the hash of the data in its normal form.
func (b *blob) sum(normal func([]byte) []byte) sum {
	if b == nil {
		return sum{}
	}
	if s := b.hash.Load(); s != nil {
		return *s
	}
	data := b.bytes()
	if normal != nil {
		data = normal(data)
	}
	h := sha256.Sum256(data)
	s := sum{binary.LittleEndian.Uint64(h[:8]), binary.LittleEndian.Uint64(h[8:16])}
	b.hash.Store(&s)
	return s
}

func (b *blob) parts() [][]byte {
	switch {
	case b == nil:
		return nil
	case b.blocks == nil:
		return [][]byte{b.b}
	}
	return b.blocks
}
