package receipt

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/permesso-dev/permesso/approval/hints"
	"github.com/permesso-dev/permesso/security/keyfile"
)

// # Rotation
//
// A statement signed by both keys says that a new key replaces an old one:
//
//	permesso key rotation v1
//	number: 1
//	old: home.example.org+3bc3b73a+AfB5…
//	new: home.example.org+8a1f2c3d+Ae0k…
//	time: 2026-11-21T12:00:00Z
//
//	— home.example.org O8O3Oq…
//	— home.example.org ih8sPf…
//
// The statements are stored beside the keys, numbered from 1 without gaps. The old
// key of each is the new key of the one before, so a client that trusts one key can
// verify the others. The replaced private key is deleted.
//
// Order: the new key is durable under its own name, then the statement is durable,
// which commits the rotation, then the new key replaces the old one. A crash
// before the statement keeps the old key; after a crash later than that the next
// LoadOrCreate completes the rotation.
const (
	nextFile     = "next.key"
	rotationLine = "permesso key rotation v1"
)

// rotation is one statement that a key replaces another.
type rotation struct {
	Number   int
	Old, New string // public keys
	Time     time.Time
}

func (r rotation) text() string {
	return fmt.Sprintf("%s\nnumber: %d\nold: %s\nnew: %s\ntime: %s\n",
		rotationLine, r.Number, r.Old, r.New, r.Time.UTC().Format(time.RFC3339))
}

func rotationFile(dir string, n int) keyfile.File {
	return public(dir, "rotated-"+strconv.Itoa(n)+".txt")
}

// parseRotation accepts only what Rotate writes.
func parseRotation(text string) (rotation, error) {
	var r rotation
	var at string
	_, err := fmt.Sscanf(text, rotationLine+"\nnumber: %d\nold: %s\nnew: %s\ntime: %s\n", &r.Number, &r.Old, &r.New, &at)
	if err == nil {
		r.Time, err = time.Parse(time.RFC3339, at)
	}
	if err != nil {
		return r, fmt.Errorf("rotation: %w", err)
	}
	for _, key := range []string{r.Old, r.New} {
		v, err := note.NewVerifier(key)
		if err != nil {
			return r, err
		}
		n, err := note.Open([]byte(text), note.VerifierList(v))
		if err != nil {
			return r, err
		}
		if n.Text != r.text() {
			return r, errors.New("rotation: not in canonical form")
		}
	}
	if r.Old == r.New {
		return r, errors.New("rotation: new key equals old key")
	}
	return r, nil
}

// rotations reads the statements in dir, oldest first.
func rotations(fsys FS, dir string) ([]rotation, error) {
	var all []rotation
	for n := 1; ; n++ {
		f := rotationFile(dir, n)
		text, err := f.Read(fsys)
		if errors.Is(err, fs.ErrNotExist) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		r, err := parseRotation(string(text))
		if err == nil && (r.Number != n || n > 1 && all[n-2].New != r.Old) {
			err = errors.New("rotation: does not continue the one before")
		}
		if err != nil {
			return nil, hints.Add(fmt.Errorf("%s: %w", f.Path, err), "restore it from a backup, or move it and all later ones away: "+
				"signatures of the keys before it are then refused")
		}
		all = append(all, r)
	}
}

// Rotate replaces the signing key in dir. The caller holds HOME/lock, so that no
// other process uses the folder. Before the rotation is committed, announce is
// called with the old and the new public key; if it fails, the old key stays.
func Rotate(fsys FS, dir string, now time.Time, announce func(old, next string) error) (*Signer, error) {
	old, err := Load(fsys, dir)
	if err == nil {
		old, err = LoadOrCreate(fsys, dir, old.signer.Name()) // completes a rotation after a crash
	}
	if err != nil {
		return nil, err
	}
	done, err := rotations(fsys, dir)
	if err != nil {
		return nil, fmt.Errorf("rotate signing key: %w", err)
	}
	next, err := prepareNext(fsys, dir, old.signer.Name())
	if err != nil {
		return nil, fmt.Errorf("rotate signing key: %w", err)
	}
	if err := announce(old.public, next.public); err != nil {
		return nil, fmt.Errorf("rotate signing key: %w", err)
	}
	r := rotation{len(done) + 1, old.public, next.public, now}
	msg, err := note.Sign(&note.Note{Text: r.text()}, old.signer, next.signer)
	if err != nil {
		return nil, fmt.Errorf("rotate signing key: %w", err)
	}
	if err = rotationFile(dir, r.Number).Create(fsys, msg); err == nil {
		err = fsys.SyncDir(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("rotate signing key: %w", err)
	}
	return LoadOrCreate(fsys, dir, old.signer.Name())
}

// prepareNext makes the new key durable under its own name.
func prepareNext(fsys FS, dir, name string) (*Signer, error) {
	f := private(dir, nextFile)
	if err := fsys.Remove(f.Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err // of a rotation that was not committed
	}
	key, err := generate(name)
	if err != nil {
		return nil, err
	}
	if err := f.Create(fsys, []byte(key+"\n")); err != nil {
		return nil, err
	}
	if err := fsys.SyncDir(dir); err != nil {
		return nil, err
	}
	return NewSigner(key)
}

// finishRotation replaces the old key if a crash prevented that after the
// statement.
func finishRotation(fsys FS, dir string) error {
	all, err := rotations(fsys, dir)
	if err != nil || len(all) == 0 {
		return err
	}
	last := all[len(all)-1]
	current, err := Load(fsys, dir)
	if err != nil {
		return err
	}
	if current.public == last.Old {
		f := private(dir, nextFile)
		key, err := readLine(fsys, f)
		if err != nil {
			return err
		}
		next, err := NewSigner(key)
		if err != nil || next.public != last.New {
			return hints.Add(fmt.Errorf("%s is not the new key of %s", f.Path, rotationFile(dir, last.Number).Path),
				"restore it from a backup")
		}
		if err := fsys.Rename(f.Path, filepath.Join(dir, privateFile)); err != nil {
			return err
		}
		current = next
	}
	if current.public != last.New {
		return notNewest(dir, privateFile, last)
	}
	return replacePublic(fsys, dir, last)
}

// notNewest refuses a key that does not follow from the last rotation.
func notNewest(dir, file string, last rotation) error {
	return hints.Add(fmt.Errorf("%s is not the new key of %s", filepath.Join(dir, file), rotationFile(dir, last.Number).Path),
		"restore the right one from a backup, or move all "+filepath.Join(dir, "rotated-*.txt")+" away: signatures of older keys are then refused")
}

// replacePublic replaces the old public key by the new one. ensurePublic refuses
// any other.
func replacePublic(fsys FS, dir string, last rotation) error {
	f := public(dir, publicFile)
	key, err := readLine(fsys, f)
	if errors.Is(err, fs.ErrNotExist) || err == nil && key != last.Old {
		return nil
	}
	if err != nil {
		return err
	}
	temp := f
	temp.Path = f.Temp()
	if err := temp.Create(fsys, []byte(last.New+"\n")); err != nil {
		return err
	}
	if err := fsys.Rename(temp.Path, f.Path); err != nil {
		fsys.Remove(temp.Path)
		return err
	}
	return nil
}

// PublicKey is a current or earlier key of a HOME.
type PublicKey struct {
	Key     string    `json:"key"`
	Current bool      `json:"current"`
	Since   time.Time `json:"since,omitzero"` // zero: the first key
	Until   time.Time `json:"until,omitzero"`
}

// PublicKeys lists the keys in dir, the current one first.
func PublicKeys(fsys FS, dir string) ([]PublicKey, error) {
	newest, err := readLine(fsys, public(dir, publicFile))
	if err != nil {
		return nil, fmt.Errorf("load public key: %w", err)
	}
	all, err := rotations(fsys, dir)
	if err != nil {
		return nil, fmt.Errorf("load public key: %w", err)
	}
	if len(all) == 0 {
		return []PublicKey{{Key: newest, Current: true}}, nil
	}
	last := all[len(all)-1]
	if newest != last.New && newest != last.Old { // the old one after a crash, until LoadOrCreate
		return nil, fmt.Errorf("load public key: %w", notNewest(dir, publicFile, last))
	}
	keys := []PublicKey{{Key: all[0].Old, Until: all[0].Time}}
	for i, r := range all {
		k := PublicKey{Key: r.New, Since: r.Time, Current: i == len(all)-1}
		if !k.Current {
			k.Until = all[i+1].Time
		}
		keys = append(keys, k)
	}
	slices.Reverse(keys)
	return keys, nil
}
