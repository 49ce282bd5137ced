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
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/spf13/afero"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/permesso-dev/permesso/approval/hints"
)

// Keys sign and verify checkpoints. The zero Keys sign none.
type Keys struct {
	Signer note.Signer
	Known  note.Verifiers // the signer's key and earlier ones
}

// Checkpoint is a signed statement about the first Size entries.
type Checkpoint struct {
	Origin string // the name of the key
	Size   int64
	Root   tlog.Hash
	Note   string // a C2SP checkpoint, as a signed note
	Key    uint32 // note's hash of the key that signed it
}

// Foot is the text about the newest checkpoint on a card: the size and the first
// four hexadecimal digits of the root, "1042 9f3c".
func (c *Checkpoint) Foot() string {
	if c == nil {
		return ""
	}
	return fmt.Sprintf("%d %x", c.Size, c.Root[:2])
}

// ErrNotSigned says that a checkpoint is malformed, or not signed by a known key.
var ErrNotSigned = errors.New("not a checkpoint signed by a known key")

// ParseCheckpoint verifies the signature of a checkpoint. Additional signatures, such
// as a witness's, are allowed and ignored.
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
		return nil, fmt.Errorf("%w: signature is not in canonical form", ErrNotSigned)
	}
	c := &Checkpoint{Origin: sig.Name, Note: msg, Key: sig.Hash}
	lines := strings.Split(n.Text, "\n")
	if len(lines) != 4 || lines[0] != sig.Name || lines[3] != "" {
		return nil, fmt.Errorf("%w: must have three lines", ErrNotSigned)
	}
	c.Size, err = strconv.ParseInt(lines[1], 10, 64)
	if err == nil {
		c.Root, err = tlog.ParseHash(lines[2])
	}
	if err != nil || c.Size < 1 || n.Text != checkpointText(c.Origin, c.Size, c.Root) {
		return nil, fmt.Errorf("%w: size or root is not in canonical form", ErrNotSigned)
	}
	return c, nil
}

// SplitCheckpoints splits a text of checkpoints, each followed by an empty line.
func SplitCheckpoints(text string) (notes []string) {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	parts := strings.Split(strings.TrimSpace(text), "\n\n")
	for i := 0; i < len(parts); i += 2 {
		note := strings.TrimSpace(parts[i])
		if i+1 < len(parts) {
			note += "\n\n" + strings.TrimSpace(parts[i+1])
		}
		notes = append(notes, note+"\n")
	}
	return notes
}

func checkpointText(origin string, size int64, root tlog.Hash) string {
	return fmt.Sprintf("%s\n%d\n%s\n", origin, size, root)
}

// checkpointLine is one line of the file of checkpoints.
type checkpointLine struct {
	Note string      `json:"note"`
	Edge []tlog.Hash `json:"edge"` // of the tree, to continue from here
}

func (m checkpointLine) encode() ([]byte, error) {
	b, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode checkpoint: %w", err)
	}
	return append(ascii(b), '\n'), nil
}

// parseCheckpointLine reads one line without its line feed. It accepts only the
// canonical form with one signature, by a known key.
func parseCheckpointLine(line []byte, known note.Verifiers) (*Checkpoint, tree, error) {
	var m checkpointLine
	if err := json.Unmarshal(line, &m, json.RejectUnknownMembers(true)); err != nil {
		return nil, tree{}, fmt.Errorf("%w: %w", ErrNotSigned, err)
	}
	again, err := m.encode()
	if err != nil || !bytes.Equal(again[:len(again)-1], line) {
		return nil, tree{}, fmt.Errorf("%w: line is not in canonical form", ErrNotSigned)
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

// tailWindow is how much of the end of the file of checkpoints is read to find the
// newest: several times the longest line.
const tailWindow = 64 << 10

// Newest returns the newest checkpoint in dir, nil if there is none.
func Newest(fsys afero.Fs, dir string, known note.Verifiers) (*Checkpoint, error) {
	end, err := readEnd(fsys, filepath.Join(dir, checkpointFile), known)
	if err != nil {
		return nil, fmt.Errorf("read checkpoints: %w", err)
	}
	return end.newest, nil
}

// fileEnd describes the end of the file of checkpoints.
type fileEnd struct {
	newest *Checkpoint // nil: there is none
	good   int64       // bytes up to and including the newest
	size   int64
}

func (e *fileEnd) entries() int64 {
	if e.newest == nil {
		return 0
	}
	return e.newest.Size
}

// readEnd finds the newest checkpoint. Bytes after it were left by a power cut. If
// there are complete lines but no valid one, the file is damaged.
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
	from := max(0, end.size-tailWindow)
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
			break // may be the middle of a line
		}
		c, _, err := parseCheckpointLine(b[begin:last], known)
		if err == nil {
			end.newest, end.good = c, from+int64(last)+1
			return end, nil
		}
		why, b = err, b[:begin]
	}
	if why != nil {
		return fileEnd{}, hints.Add(fmt.Errorf("%w: %s: %w", ErrDamaged, path, why),
			"if the key was replaced on purpose, move that file away: the log is signed again, and has an alarm to acknowledge")
	}
	return end, nil
}

// checkpointWriter writes the file of checkpoints. It is protected by Log.files.
type checkpointWriter struct {
	fs     FS
	dir    string
	signer note.Signer
	file   afero.File // nil: to be opened
	good   int64      // bytes of valid lines
}

// write signs and appends a checkpoint of t. It is not synced: a lost checkpoint can be
// made again.
func (s *checkpointWriter) write(t tree) (*Checkpoint, error) {
	root := t.root()
	msg, err := note.Sign(&note.Note{Text: checkpointText(s.signer.Name(), t.size, root)}, s.signer)
	if err != nil {
		return nil, fmt.Errorf("sign checkpoint: %w", err)
	}
	line, err := checkpointLine{string(msg), t.edge}.encode()
	if err == nil {
		err = s.append(line)
	}
	if err != nil {
		return nil, fmt.Errorf("write checkpoint: %w", err)
	}
	return &Checkpoint{s.signer.Name(), t.size, root, string(msg), s.signer.KeyHash()}, nil
}

func (s *checkpointWriter) path() string { return CheckpointPath(s.dir) }

// CheckpointPath is the file of the checkpoints of a log in dir.
func CheckpointPath(dir string) string { return filepath.Join(dir, checkpointFile) }

func (s *checkpointWriter) append(line []byte) (err error) {
	if s.file == nil {
		if s.file, err = s.open(); err != nil {
			return err
		}
	}
	if _, err = s.file.Write(line); err != nil {
		s.close()
		return err
	}
	s.good += int64(len(line))
	return nil
}

// open opens the file for appending. It cuts off bytes after the valid lines, which a power
// cut or a failed write left: no checkpoint may follow an incomplete one.
func (s *checkpointWriter) open() (afero.File, error) {
	f, err := s.fs.OpenFile(s.path(), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	if err := f.Truncate(s.good); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (s *checkpointWriter) close() {
	if s.file != nil {
		s.file.Close()
		s.file = nil
	}
}
