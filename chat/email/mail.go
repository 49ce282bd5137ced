package email

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/mail"
	"strings"
	"unicode/utf8"

	"github.com/emersion/go-message"
	"github.com/emersion/go-message/charset"

	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/email/mailbox"
)

// The limits for an email that is parsed, and for the parts of its header.
const (
	maxParts     = 20
	maxDepth     = 5
	maxField     = 16 << 10 // bytes of one address or identifier field
	maxAddresses = 100
	maxIDs       = 50
)

// errCaps means that an email is too large, has too many parts or nests them too
// deeply.
var errCaps = errors.New("over the limits")

// inboundMail is the part of an email that matters for a decision. It may decide only if
// Doubt is "".
type inboundMail struct {
	From       []string // every address of every From field, without names
	Subject    string   // decoded, on one line
	MessageID  string   // this and the next two with their angle brackets
	InReplyTo  []string
	References []string
	Recipients []string            // addresses of To, Cc, Delivered-To, X-Original-To, Envelope-To
	Addressees map[string][]string // the addresses of To and of Cc
	Date       string
	Resent     bool   // it was sent on, unchanged
	Text       string // the visible text, with quotations; lines end in "\n"
	HTML       bool   // Text came from HTML
	Doubt      string // why the email cannot decide, as a key of messages; "": no doubt

	doubtful string // the field or the type that Doubt is about
	flowed   bool   // Text was format=flowed: its quotation marks are exact
	htmlText string // the text of the HTML part, if Text is the plain part
}

// readMail parses one message. It fails if the message is too large or the header is malformed.
// Every other problem is put in Doubt: an unknown charset or encoding, a broken structure, too
// many parts, duplicate fields. Its errors do not quote the input, which may contain a token.
func readMail(raw []byte) (*inboundMail, error) {
	if len(raw) > mailbox.MaxMail {
		return nil, fmt.Errorf("read email: %d bytes, at most %d: %w", len(raw), mailbox.MaxMail, errCaps)
	}
	e, err := message.Read(bytes.NewReader(raw))
	if e == nil || err != nil && !message.IsUnknownCharset(err) && !message.IsUnknownEncoding(err) {
		return nil, errors.New("read email: malformed header")
	}
	m, r := &inboundMail{}, &partReader{}
	t, err := r.read(m, e, err, 1, true)
	m.header(e.Header, raw)
	if err != nil { // its sender can be told
		m.Doubt = "parts"
	}
	if m.Doubt == "" { // else the first text is not reliable
		m.Doubt, m.doubtful = r.text.Doubt, r.text.doubtful
		m.body(t)
	}
	return m, nil
}

func (m *inboundMail) addDoubt(why, what string) {
	if m.Doubt == "" {
		m.Doubt, m.doubtful = why, what
	}
}

func (m *inboundMail) doubtText(w *catalog) string {
	return chat.Format(w.Doubts[m.Doubt], "what", m.doubtful)
}

// partReader reads the parts of one message.
type partReader struct {
	parts int
	text  inboundMail // holds the first doubt about a text
}

// read reads a part and what is in it. A broken structure puts m in doubt. It returns the
// first text that is not an attachment, if that is wanted. err is the library's, and not
// nil if the part cannot be decoded.
func (r *partReader) read(m *inboundMail, e *message.Entity, err error, depth int, wanted bool) (found texts, _ error) {
	kind, params, typeErr := e.Header.ContentType()
	if typeErr != nil {
		m.addDoubt("partType", "")
		return texts{}, nil
	}
	for _, field := range []string{"Content-Type", "Content-Transfer-Encoding", "Content-Disposition"} {
		if e.Header.FieldsByKey(field).Len() > 1 {
			m.addDoubt("partFields", field)
		}
	}
	wanted = wanted && !attached(e.Header, params)
	if wanted && (kind == "multipart/report" || kind == "multipart/encrypted") {
		r.text.addDoubt("kind", kind)
		wanted = false
	}
	inner := e.MultipartReader()
	switch {
	case inner == nil && wanted && (kind == "text/plain" || kind == "text/html"):
		return r.text.decode(e, err, kind, params), nil
	case inner == nil:
		return texts{}, nil
	case depth > maxDepth:
		return texts{}, fmt.Errorf("parts more than %d deep: %w", maxDepth, errCaps)
	}
	for {
		p, err := inner.NextPart()
		if p == nil {
			if err != io.EOF { //nolint:errorlint // a wrapped EOF is an unexpected end
				m.addDoubt("structure", "")
			}
			return found, nil
		}
		if r.parts++; r.parts > maxParts {
			return texts{}, fmt.Errorf("more than %d parts: %w", maxParts, errCaps)
		}
		t, err := r.read(m, p, err, depth+1, wanted)
		if err != nil {
			return texts{}, err
		}
		if kind != "multipart/alternative" && !t.empty() {
			found, wanted = t, false // the rest is attachments, or the footer of a mailing list
		}
		if strings.TrimSpace(found.plain) == "" {
			found.plain, found.flowed = t.plain, t.flowed
		}
		if strings.TrimSpace(found.html) == "" {
			found.html = t.html
		}
	}
}

func (m *inboundMail) header(h message.Header, raw []byte) {
	m.checkHeader(h, raw)
	subject, err := h.Text("Subject")
	if err != nil {
		m.addDoubt("subject", "")
	}
	m.Subject = strings.Join(strings.Fields(visibleText(subject)), " ")
	m.senders(h)
	m.Date, m.Addressees = h.Get("Date"), map[string][]string{}
	for f := h.Fields(); f.Next(); {
		m.Resent = m.Resent || strings.HasPrefix(chat.LowerASCII(f.Key()), "resent-")
	}
	for _, field := range []string{"To", "Cc", "Delivered-To", "X-Original-To", "Envelope-To"} {
		for f := h.FieldsByKey(field); f.Next(); {
			list, _ := addresses(f.Value()) // an unreadable field names no recipient
			m.Recipients = append(m.Recipients, list...)
			m.Addressees[field] = append(m.Addressees[field], list[:min(len(list), maxAddresses)]...)
		}
	}
	m.Recipients = m.Recipients[:min(len(m.Recipients), maxAddresses)]
	if ids := messageIDs(h.Get("Message-Id")); len(ids) > 0 {
		m.MessageID = ids[0]
	}
	m.InReplyTo = messageIDs(h.Get("In-Reply-To"))
	m.References = messageIDs(h.Get("References"))
}

// checkHeader doubts headers that different programs read differently.
func (m *inboundMail) checkHeader(h message.Header, raw []byte) {
	head := raw
	for _, end := range []string{"\r\n\r\n", "\n\n"} {
		if i := bytes.Index(head, []byte(end)); i >= 0 {
			head = head[:i]
		}
	}
	bare := bytes.Count(head, []byte("\r")) != bytes.Count(head, []byte("\r\n")) && !bytes.HasSuffix(head, []byte("\r"))
	if bare || bytes.IndexByte(head, 0) >= 0 {
		m.addDoubt("control", "")
	}
	for _, field := range []string{"Subject", "Date", "Message-Id", "In-Reply-To", "References", "Mime-Version"} {
		if h.FieldsByKey(field).Len() > 1 {
			m.addDoubt("fields", field)
		}
	}
}

func (m *inboundMail) senders(h message.Header) {
	for f := h.FieldsByKey("From"); f.Next(); {
		list, err := addresses(f.Value())
		if err != nil {
			m.addDoubt("from", "")
		}
		m.From = append(m.From, list...)
	}
	switch {
	case len(m.From) > maxAddresses:
		m.From = m.From[:maxAddresses]
		m.addDoubt("manySenders", "")
	case len(m.From) == 0:
		m.addDoubt("noSender", "")
	}
}

// unquoted matches an address that needs no quotes. Without its quotes, an address
// that needs them looks like another one.
var unquoted = pattern(`^[^\s"(),:;<>@\[\\\]\x00-\x1f]+@[^\s"(),:;<>@\\\x00-\x1f]+$`)

// addresses returns the addresses of one field. All of them must be readable.
func addresses(field string) ([]string, error) {
	if len(field) > maxField {
		return nil, errors.New("too long")
	}
	p := mail.AddressParser{WordDecoder: &mime.WordDecoder{CharsetReader: charset.Reader}}
	list, err := p.ParseList(field)
	if err != nil {
		return nil, err
	}
	var bare []string
	for _, a := range list {
		if !unquoted().MatchString(a.Address) {
			return nil, errors.New("not a plain address")
		}
		bare = append(bare, a.Address)
	}
	return bare, nil
}

var idForm = pattern(`<[^<>\s]+>`)

// messageIDs are the last ones of a field: the newest.
func messageIDs(field string) []string {
	if len(field) > maxField {
		field = field[len(field)-maxField:]
	}
	ids := idForm().FindAllString(field, -1)
	return ids[max(0, len(ids)-maxIDs):]
}

// body takes the text.
func (m *inboundMail) body(t texts) {
	var p flatHTML
	if t.html != "" {
		p = flatten(t.html)
	}
	switch {
	case strings.TrimSpace(t.plain) != "":
		m.Text, m.flowed, m.htmlText = t.plain, t.flowed, p.text
	case t.html != "":
		m.Text, m.HTML = p.text, true
		if p.sheetHides {
			m.addDoubt("styleSheet", "")
		}
	default:
		m.addDoubt("noText", "")
	}
	if p.broken {
		m.addDoubt("html", "")
	}
	if p.struck {
		m.addDoubt("struck", "")
	}
}

// texts are the plain and the HTML form of one text.
type texts struct {
	plain, html string
	flowed      bool
}

func (t texts) empty() bool {
	return strings.TrimSpace(t.plain) == "" && strings.TrimSpace(t.html) == ""
}

func attached(h message.Header, params map[string]string) bool {
	how, more, _ := h.ContentDisposition()
	return strings.EqualFold(how, "attachment") || more["filename"] != "" || params["name"] != ""
}

func (m *inboundMail) decode(e *message.Entity, err error, kind string, params map[string]string) texts {
	if err != nil {
		m.addDoubt("encoding", "")
		return texts{}
	}
	b, err := io.ReadAll(e.Body)
	if err != nil {
		m.addDoubt("undecodable", "")
	}
	s := string(b)
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\uFFFD") // an answer with this character is refused
	}
	s = newlines.Replace(s)
	if kind == "text/html" {
		return texts{html: s}
	}
	if strings.EqualFold(params["format"], "flowed") {
		return texts{plain: unflow(s, strings.EqualFold(params["delsp"], "yes")), flowed: true}
	}
	return texts{plain: s}
}

var newlines = strings.NewReplacer("\r\n", "\n", "\r", "\n", "\v", "\n", "\f", "\n", "\u0085", "\n", "\u2028", "\n", "\u2029", "\n")

// unflow joins the lines that format=flowed (RFC 3676) has broken. It keeps quotation
// marks: one ">" for each level.
func unflow(s string, delsp bool) string {
	var b strings.Builder
	soft, depthBefore := false, -1
	for l := range strings.SplitSeq(s, "\n") {
		rest := strings.TrimLeft(l, ">")
		depth := len(l) - len(rest)
		rest = strings.TrimPrefix(rest, " ") // space-stuffing
		delimiter := rest == "-- "
		if !soft || depth != depthBefore || rest == "" || delimiter {
			if depthBefore >= 0 {
				b.WriteByte('\n')
			}
			b.WriteString(quotePrefix(depth))
		}
		soft, depthBefore = strings.HasSuffix(rest, " ") && !delimiter, depth
		if soft && delsp {
			rest = rest[:len(rest)-1]
		}
		b.WriteString(rest)
	}
	return b.String()
}

// maxQuotes is the maximum quotation depth in the output.
const maxQuotes = 8

func quotePrefix(depth int) string {
	if depth == 0 {
		return ""
	}
	return strings.Repeat(">", min(depth, maxQuotes)) + " "
}
