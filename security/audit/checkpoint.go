package audit

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/spf13/afero"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// Keys sign checkpoints and tell ours from others. The zero Keys sign none.
type Keys struct {
	Signer note.Signer
	Known  note.Verifiers // of the signer's key and of those before it
}

// Checkpoint is a signed statement about the first Size entries.
type Checkpoint struct {
	Origin string // the name of the key
	Size   int64
	Root   tlog.Hash
	Note   string // the statement itself: a C2SP checkpoint, as a signed note
	Key    uint32 // note's number of the key that signed it
}

// Foot is what a card shows of the newest checkpoint: the size and the first
// four hexadecimal digits of the root, "1042 9f3c".
func (c *Checkpoint) Foot() string {
	if c == nil {
		return ""
	}
	return fmt.Sprintf("%d %x", c.Size, c.Root[:2])
}

// ErrNotSigned says that a checkpoint is none, or is not signed by a known key.
var ErrNotSigned = errors.New("not a checkpoint that a known key has signed")

// ParseCheckpoint verifies the signature of a checkpoint. Signatures beside
// ours, a witness's for example, are allowed and mean nothing.
func ParseCheckpoint(msg string, known note.Verifiers) (*Checkpoint, error) {
	if known == nil {
		return nil, fmt.Errorf("%w: no key", ErrNotSigned)
	}
	n, err := note.Open([]byte(msg), known)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotSigned, err)
	}
	sig := n.Sigs[0]
	if _, err := base64.StdEncoding.Strict().DecodeString(sig.Base64); err != nil {
		return nil, fmt.Errorf("%w: the signature is not written in the one way", ErrNotSigned)
	}
	c := &Checkpoint{Origin: sig.Name, Note: msg, Key: sig.Hash}
	lines := strings.Split(n.Text, "\n")
	if len(lines) != 4 || lines[0] != sig.Name || lines[3] != "" {
		return nil, fmt.Errorf("%w: it does not have its three lines", ErrNotSigned)
	}
	c.Size, err = strconv.ParseInt(lines[1], 10, 64)
	if err == nil {
		c.Root, err = tlog.ParseHash(lines[2])
	}
	if err != nil || c.Size < 1 || n.Text != checkpointText(c.Origin, c.Size, c.Root) {
		return nil, fmt.Errorf("%w: its size or its root is not written in the one way", ErrNotSigned)
	}
	return c, nil
}

func checkpointText(origin string, size int64, root tlog.Hash) string {
	return fmt.Sprintf("%s\n%d\n%s\n", origin, size, root)
}

// mark is one line of the file of checkpoints.
type mark struct {
	Note string      `json:"note"`
	Edge []tlog.Hash `json:"edge"` // of the tree, to go on from here
}

func (m mark) encode() ([]byte, error) {
	b, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode checkpoint: %w", err)
	}
	return append(ascii(b), '\n'), nil
}

// parseMark reads one line, given without its line feed, and believes it only
// if a known key signed it, alone, and it is written as we write it.
func parseMark(line []byte, known note.Verifiers) (*Checkpoint, tree, error) {
	var m mark
	if err := json.Unmarshal(line, &m, json.RejectUnknownMembers(true)); err != nil {
		return nil, tree{}, fmt.Errorf("%w: %w", ErrNotSigned, err)
	}
	again, err := m.encode()
	if err != nil || !bytes.Equal(again[:len(again)-1], line) {
		return nil, tree{}, fmt.Errorf("%w: its line is not written in the one way", ErrNotSigned)
	}
	c, err := ParseCheckpoint(m.Note, known)
	if err != nil {
		return nil, tree{}, err
	}
	if _, sigs, _ := strings.Cut(m.Note, "\n\n"); strings.Count(sigs, "\n") != 1 {
		return nil, tree{}, fmt.Errorf("%w: more than one signature", ErrNotSigned)
	}
	t, err := newTree(c.Size, m.Edge, c.Root)
	if err != nil {
		return nil, tree{}, fmt.Errorf("%w: %w", ErrNotSigned, err)
	}
	return c, t, nil
}

const checkpointFile = "checkpoints.jsonl"

// lookBack is how much of the end of the file of checkpoints is read to find
// the newest: several times the longest line.
const lookBack = 64 << 10

// Newest is the newest checkpoint in dir, or nil where there is none yet.
func Newest(fsys afero.Fs, dir string, known note.Verifiers) (*Checkpoint, error) {
	end, err := readEnd(fsys, filepath.Join(dir, checkpointFile), known)
	if err != nil {
		return nil, fmt.Errorf("read checkpoints: %w", err)
	}
	return end.newest, nil
}

// fileEnd is what the end of the file of checkpoints says.
type fileEnd struct {
	newest *Checkpoint // nil: there is none
	tree   tree
	good   int64 // bytes up to and with the newest
	size   int64
}

// readEnd finds the newest checkpoint. What lies behind it is what a power cut
// left of a later one. Whole lines of which none is good are no such thing.
func readEnd(fsys afero.Fs, path string, known note.Verifiers) (fileEnd, error) {
	f, err := fsys.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fileEnd{}, nil
	}
	if err != nil {
		return fileEnd{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fileEnd{}, err
	}
	end := fileEnd{size: info.Size()}
	from := max(0, end.size-lookBack)
	if _, err := f.Seek(from, io.SeekStart); err != nil {
		return fileEnd{}, err
	}
	b, err := io.ReadAll(io.LimitReader(f, end.size-from))
	if err != nil {
		return fileEnd{}, err
	}
	var why error
	for {
		last := bytes.LastIndexByte(b, '\n')
		if last < 0 {
			break
		}
		begin := bytes.LastIndexByte(b[:last], '\n') + 1
		if begin == 0 && from > 0 {
			break // perhaps not its beginning
		}
		c, t, err := parseMark(b[begin:last], known)
		if err == nil {
			end.newest, end.tree, end.good = c, t, from+int64(last)+1
			return end, nil
		}
		why, b = err, b[:begin]
	}
	if why != nil {
		return fileEnd{}, fmt.Errorf("%w: %s: %w\nhint: permesso audit verify tells more; if the key was replaced on "+
			"purpose, move that file away: the log is signed anew", ErrDamaged, path, why)
	}
	return end, nil
}

// signing keeps the file of checkpoints. Whoever syncs the log holds it.
type signing struct {
	fs     FS
	dir    string
	signer note.Signer
	file   afero.File // nil: to be opened
	good   int64      // bytes that are durable
	newest *Checkpoint
}

// write signs and adds a checkpoint of t. It is durable on return. After an
// error the next call begins where this one began: nothing half written stays
// before a later one.
func (s *signing) write(t tree) error {
	root := t.root()
	msg, err := note.Sign(&note.Note{Text: checkpointText(s.signer.Name(), t.size, root)}, s.signer)
	if err != nil {
		return fmt.Errorf("sign checkpoint: %w", err)
	}
	line, err := mark{string(msg), slices.Clone(t.edge)}.encode()
	if err == nil {
		err = s.append(line)
	}
	if err != nil {
		return fmt.Errorf("write checkpoint: %w", err)
	}
	s.newest = &Checkpoint{s.signer.Name(), t.size, root, string(msg), s.signer.KeyHash()}
	return nil
}

func (s *signing) append(line []byte) (err error) {
	if s.file == nil {
		if s.file, err = s.open(); err != nil {
			return err
		}
	}
	_, err = s.file.Write(line)
	if err == nil {
		err = s.file.Sync()
	}
	if err != nil {
		s.close()
		return err
	}
	s.good += int64(len(line))
	return nil
}

// open opens the file to append to it. One that has more than what is good, after
// a power cut or a failed fsync, is replaced by a copy of what is good: no later
// checkpoint must stand behind half a one.
func (s *signing) open() (afero.File, error) {
	path := filepath.Join(s.dir, checkpointFile)
	info, err := s.fs.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s.create(path, nil)
	}
	if err != nil {
		return nil, err
	}
	if info.Size() == s.good {
		return s.fs.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0o600)
	}
	old, err := s.fs.Open(path)
	if err != nil {
		return nil, err
	}
	defer old.Close()
	return s.create(path, io.LimitReader(old, s.good))
}

// create makes the file, over whatever is there: it appears whole and durable,
// or not at all.
func (s *signing) create(path string, content io.Reader) (afero.File, error) {
	temp := filepath.Join(s.dir, ".checkpoints.new")
	if err := s.fs.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	f, err := s.fs.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	if content != nil {
		_, err = io.Copy(f, content)
	}
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = s.fs.Rename(temp, path)
	}
	if err == nil {
		err = s.fs.SyncDir(s.dir)
	}
	if err != nil {
		f.Close()
		s.fs.Remove(temp)
		return nil, err
	}
	return f, nil
}

func (s *signing) close() {
	if s.file != nil {
		s.file.Close()
		s.file = nil
	}
}
