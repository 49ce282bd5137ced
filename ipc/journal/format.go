package journal

import (
	"encoding/binary"
	"hash/crc32"
)

const (
	blockSize  = 4 << 10
	magic      = "permesso"
	version    = 1
	nonceSize  = 16
	headerSize = len(magic) + 4 + nonceSize + 8 + 8 + 4
	headersEnd = 2 * blockSize // two copies of the header
	groupSize  = 8 + 8 + 4 + 4 // of a group's own numbers
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// header is the first block of a segment.
type header struct {
	nonce [nonceSize]byte
	first uint64 // number of the segment's first group
	place uint64
}

// append appends the header's two blocks.
func (h *header) append(b []byte) []byte { return h.appendBlock(h.appendBlock(b)) }

func (h *header) appendBlock(b []byte) []byte {
	begin := len(b)
	b = append(b, magic...)
	b = binary.LittleEndian.AppendUint32(b, version)
	b = append(b, h.nonce[:]...)
	b = binary.LittleEndian.AppendUint64(b, h.first)
	b = binary.LittleEndian.AppendUint64(b, h.place)
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[begin:], castagnoli))
	return append(b, make([]byte, blockSize-headerSize)...)
}

// parseHeader reads the first copy, or else the second. It reports false for a segment that
// was never used, or whose header is torn.
func parseHeader(b []byte) (h header, ok bool) {
	if h, ok = parseHeaderBlock(b[:blockSize]); ok {
		return h, ok
	}
	return parseHeaderBlock(b[blockSize:headersEnd])
}

func parseHeaderBlock(b []byte) (h header, ok bool) {
	if len(b) < headerSize || string(b[:len(magic)]) != magic {
		return h, false
	}
	sum := binary.LittleEndian.Uint32(b[headerSize-4:])
	if crc32.Checksum(b[:headerSize-4], castagnoli) != sum || binary.LittleEndian.Uint32(b[len(magic):]) != version {
		return h, false
	}
	b = b[len(magic)+4:]
	copy(h.nonce[:], b)
	h.first, h.place = binary.LittleEndian.Uint64(b[nonceSize:]), binary.LittleEndian.Uint64(b[nonceSize+8:])
	return h, true
}

// group is the bytes of one group.
type group struct {
	number, place uint64
	bodies        []byte
}

// append appends the group, without padding.
func (g *group) append(b []byte, nonce *[nonceSize]byte) []byte {
	begin := len(b)
	b = binary.LittleEndian.AppendUint64(b, g.number)
	b = binary.LittleEndian.AppendUint64(b, g.place)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(g.bodies)))
	b = binary.LittleEndian.AppendUint32(b, checksum(nonce, b[begin:], g.bodies))
	return append(b, g.bodies...)
}

func checksum(nonce *[nonceSize]byte, numbers, bodies []byte) uint32 {
	sum := crc32.Checksum(nonce[:], castagnoli)
	sum = crc32.Update(sum, castagnoli, numbers)
	return crc32.Update(sum, castagnoli, bodies)
}

// parseGroup reads the group at the beginning of b. Its bodies are a part of b.
func parseGroup(b []byte, nonce *[nonceSize]byte) (g group, ok bool) {
	if len(b) < groupSize {
		return g, false
	}
	length := int(binary.LittleEndian.Uint32(b[16:]))
	if length > len(b)-groupSize {
		return g, false
	}
	g = group{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:]), b[groupSize : groupSize+length]}
	return g, checksum(nonce, b[:20], g.bodies) == binary.LittleEndian.Uint32(b[20:])
}

// appendBody appends one body to the bodies of a group.
func appendBody(bodies, body []byte) []byte {
	return append(binary.LittleEndian.AppendUint32(bodies, uint32(len(body))), body...)
}

// eachBody calls yield for each body of a group, whose checksum is right.
func eachBody(bodies []byte, yield func(body []byte) error) error {
	for len(bodies) > 0 {
		n := -1
		if len(bodies) >= 4 {
			n = int(binary.LittleEndian.Uint32(bodies))
		}
		if n < 0 || n > len(bodies)-4 {
			return damaged("a group's bodies do not fill it")
		}
		if err := yield(bodies[4 : 4+n]); err != nil {
			return err
		}
		bodies = bodies[4+n:]
	}
	return nil
}

// inBlocks is n rounded up to whole blocks.
func inBlocks(n int64) int64 { return (n + blockSize - 1) / blockSize * blockSize }
