package telegram

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

// book is the notebook with an index over its pages: which button and which message stand for what. Pages
// that it hands out are never changed.
type book struct {
	notebook chat.SentStore
	locks    locks // one change of a page at a time

	mu       sync.Mutex // guards what follows
	opened   map[string]bool
	pages    map[approval.Key]*page
	buttons  map[string]button
	messages map[message]spot
	past     []approval.Key // those whose pages went last
	left     map[approval.Key]*page
}

// button is what a nonce stands for.
type button struct {
	key  approval.Key
	n    int // the post's number
	verb string
}

// message names one message of Telegram's.
type message struct {
	chat int64
	id   int
}

// spot is what a message of ours stands for; verb is that of a prompt.
type spot struct {
	key  approval.Key
	n    int
	verb string
}

// maxPast is how many requests a late tap is still explained for after their pages are gone.
const maxPast = 500

// open reads the pages of the workspaces, each once. A page that cannot be read is torn out: its request is asked
// anew.
func (b *book) open(workspaces []string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pages == nil {
		b.opened = map[string]bool{}
		b.pages, b.buttons, b.messages = map[approval.Key]*page{}, map[string]button{}, map[message]spot{}
		b.left = map[approval.Key]*page{}
	}
	var errs []error
	for _, ws := range workspaces {
		if b.opened[ws] {
			continue
		}
		ids, err := b.notebook.List(ws)
		b.opened[ws] = err == nil
		errs = append(errs, err)
		for _, id := range ids {
			if k := (approval.Key{Workspace: ws, ID: id}); b.pages[k] == nil {
				errs = append(errs, b.read(k))
			}
		}
	}
	return errors.Join(errs...)
}

// read wants b.mu.
func (b *book) read(k approval.Key) error {
	raw, err := b.notebook.Load(k)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	p, err := parsePage(raw)
	if err != nil {
		return errors.Join(fmt.Errorf("%s is asked anew: %w", k, err), b.notebook.Remove(k))
	}
	b.swap(k, p)
	return nil
}

// page is what stands there about a request, or nil.
func (b *book) page(k approval.Key) *page {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.pages[k]
}

// keys lists the requests of these workspaces that have a page, in order.
func (b *book) keys(workspaces []string) []approval.Key {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []approval.Key
	for k := range b.pages {
		if slices.Contains(workspaces, k.Workspace) {
			all = append(all, k)
		}
	}
	slices.SortFunc(all, func(x, y approval.Key) int { return strings.Compare(x.String(), y.String()) })
	return all
}

// errKept is returned by a change that leaves a page as it is.
var errKept = errors.New("nothing to change")

// change rewrites a page, a blank one where there is none, and has it durable before anybody sees it.
func (b *book) change(k approval.Key, how func(p *page) error) error {
	_, err := b.rewrite(k, how, false)
	return err
}

// remember is note for what people may answer before the disk has it.
func (b *book) remember(k approval.Key, how func(p *page) error) error {
	_, err := b.rewrite(k, how, true)
	return err
}

// note is change for what has happened already: it holds in memory even where the disk refuses it, or a
// card would be sent over and over.
func (b *book) note(k approval.Key, how func(p *page) error) error {
	next, err := b.rewrite(k, how, false)
	if err != nil && next != nil {
		b.mu.Lock()
		b.swap(k, next)
		b.mu.Unlock()
	}
	return err
}

// rewrite has a page durable before it is seen, or, where early says so, seen before.
func (b *book) rewrite(k approval.Key, how func(p *page) error, early bool) (*page, error) {
	defer b.locks.take(k)()
	next := b.page(k).clone()
	if next == nil {
		next = &page{Version: 1}
	}
	if err := how(next); err != nil {
		if errors.Is(err, errKept) {
			err = nil
		}
		return nil, err
	}
	raw, err := next.encode()
	if err != nil {
		return nil, err
	}
	if early {
		b.mu.Lock()
		b.swap(k, next)
		b.mu.Unlock()
	}
	if err := b.notebook.Save(k, raw); err != nil {
		return next, fmt.Errorf("write page %s: %w", k, err)
	}
	if !early {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.swap(k, next)
	}
	return next, nil
}

// remove tears a page out. Of what it said, the meaning of its buttons is remembered for a while.
func (b *book) remove(k approval.Key) error {
	defer b.locks.take(k)()
	if err := b.notebook.Remove(k); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.pages[k]; p != nil {
		if b.left[k] != nil {
			b.unlink(b.left[k])
			b.past = slices.DeleteFunc(b.past, func(o approval.Key) bool { return o == k })
		}
		b.left[k], b.past = p, append(b.past, k)
	}
	delete(b.pages, k)
	if len(b.past) > maxPast {
		oldest := b.past[0]
		b.past = b.past[1:]
		b.unlink(b.left[oldest])
		delete(b.left, oldest)
	}
	return nil
}

// swap puts a page in the place of the one before it, in the index, too. It wants b.mu.
func (b *book) swap(k approval.Key, next *page) {
	b.unlink(b.pages[k])
	b.pages[k] = next
	for _, x := range next.Posts {
		for verb, n := range x.Nonces {
			b.buttons[n] = button{k, x.N, verb}
		}
		if x.Message != 0 {
			b.messages[message{x.Chat, x.Message}] = spot{k, x.N, ""}
		}
		for _, p := range x.Prompts {
			b.messages[message{x.Chat, p.Message}] = spot{k, x.N, p.Verb}
		}
	}
}

func (b *book) unlink(p *page) {
	if p == nil {
		return
	}
	for _, x := range p.Posts {
		for _, n := range x.Nonces {
			delete(b.buttons, n)
		}
		delete(b.messages, message{x.Chat, x.Message})
		for _, prompt := range x.Prompts {
			delete(b.messages, message{x.Chat, prompt.Message})
		}
	}
}

// find says what a nonce stands for, and on which page. Where live is false that page is gone, and what it
// says is of the past.
func (b *book) find(nonce string) (at button, p *page, live bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at, ok := b.buttons[nonce]
	if !ok {
		return at, nil, false
	}
	if p = b.pages[at.key]; p.post(at.n) != nil && p.post(at.n).Nonces[at.verb] == nonce {
		return at, p, true
	}
	return at, b.left[at.key], false
}

// spot says what a message stands for.
func (b *book) spot(chatID int64, id int) (spot, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, ok := b.messages[message{chatID, id}]
	return s, ok
}

// either is the post that a message stands for, on its page or on what is remembered of it.
func (b *book) either(at spot) (*page, *post) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range []*page{b.pages[at.key], b.left[at.key]} {
		if x := p.post(at.n); x != nil {
			return p, x
		}
	}
	return nil, nil
}
