package email

import (
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// flatHTML is the visible text of an HTML body, line by line, in the form of plain text:
// quotations after ">", rules as dashes. Nothing is loaded or executed.
type flatHTML struct {
	text       string
	struck     bool // text outside quotations is struck out
	sheetHides bool // a style sheet hides something; it is not evaluated
	broken     bool
}

// flatten converts HTML. Hidden text is left out.
func flatten(src string) flatHTML {
	f := &flattener{}
	doc, err := html.Parse(strings.NewReader(src))
	if err != nil {
		return flatHTML{broken: true} // nested more than 512 deep
	}
	f.walk(doc, textStyle{})
	f.endLine()
	return flatHTML{text: f.b.String(), struck: f.struck, sheetHides: f.sheetHides}
}

// flattener writes lines.
type flattener struct {
	b          strings.Builder
	line       strings.Builder
	depth      int // of quotation
	last       int // the depth of the line above, or -1 if that is blank
	lines      int
	blank      bool // insert a blank line before the next one
	space      bool // insert a space before the next word
	struck     bool
	sheetHides bool
}

// textStyle is the text style that an element inherits.
type textStyle struct {
	pre    bool
	struck bool
	fg, bg *color // nil: not set
}

const quoteStart = "-----Original Message-----"

func (f *flattener) walk(n *html.Node, l textStyle) {
	switch n.Type {
	case html.TextNode:
		f.writeText(n.Data, l)
		return
	case html.ElementNode:
		f.element(n, l)
		return
	case html.DocumentNode:
		f.children(n, l)
	}
}

func (f *flattener) children(n *html.Node, l textStyle) {
	for c := n.FirstChild; c != nil; c = c.NextSibling {
		f.walk(c, l)
	}
}

func (f *flattener) element(n *html.Node, l textStyle) {
	s := styleOf(n)
	switch n.DataAtom {
	case atom.Style:
		f.sheetHides = f.sheetHides || hidingRule().MatchString(textIn(n))
	case atom.Head:
		f.children(n, l) // for its style sheets: nothing else in it is visible
		return
	}
	if slices.Contains(words("hidden elements"), n.Data) || n.DataAtom == 0 && n.Namespace != "" || s.hidden() {
		return
	}
	l = l.with(n, s)
	switch n.DataAtom {
	case atom.Br:
		f.newLine()
		return
	case atom.Hr:
		f.ownLine("________________________________")
		return
	case atom.Td, atom.Th:
		f.space = true
	}
	if !slices.Contains(words("block elements"), n.Data) {
		f.children(n, l)
		return
	}
	f.block(n, s, l)
}

func (f *flattener) block(n *html.Node, s style, l textStyle) {
	f.endLine()
	marginal := slices.Contains(words("margin elements"), n.Data) && !s.noMargins(n)
	f.blank = f.blank || marginal
	name := namesOf(n)
	switch {
	case quoteStartNames().MatchString(name):
		f.ownLine(quoteStart)
	case signatureNames().MatchString(name):
		f.ownLine("-- ")
	case s.hasTopBorder():
		f.ownLine("________________________________")
	}
	quoted := n.DataAtom == atom.Blockquote || quoteNames().MatchString(name)
	if quoted {
		f.depth++
	}
	if n.DataAtom == atom.Li {
		f.bullet(n)
	}
	f.children(n, l)
	f.endLine()
	if quoted {
		f.depth--
	}
	f.blank = f.blank || marginal
}

// bullet writes what a browser shows before a list item.
func (f *flattener) bullet(n *html.Node) {
	if n.Parent == nil || n.Parent.DataAtom != atom.Ol {
		f.line.WriteString("• ")
		return
	}
	count := 1
	for s := n.PrevSibling; s != nil && count < 99; s = s.PrevSibling {
		if s.DataAtom == atom.Li {
			count++
		}
	}
	f.line.WriteString(strconv.Itoa(count) + ". ")
}

// writeText writes the text of a node and collapses its blanks as browsers do.
func (f *flattener) writeText(s string, l textStyle) {
	if s == "" || l.unreadable() {
		return
	}
	if l.struck && f.depth == 0 && strings.TrimSpace(visibleText(s)) != "" {
		f.struck = true
	}
	if l.pre {
		for i, part := range strings.Split(s, "\n") {
			if i > 0 {
				f.newLine()
			}
			f.line.WriteString(part)
		}
		return
	}
	for i, part := range strings.FieldsFunc(s, collapsible) {
		if i > 0 || collapsible(rune(s[0])) {
			f.space = true
		}
		if f.space && f.line.Len() > 0 {
			f.line.WriteByte(' ')
		}
		f.space = false
		f.line.WriteString(part)
	}
	f.space = f.space || collapsible(rune(s[len(s)-1]))
}

func collapsible(r rune) bool {
	return r == ' ' || r == '\t' || r == '\n' || r == '\r' || r == '\f'
}

// endLine ends a line that is not empty.
func (f *flattener) endLine() {
	f.space = false
	if f.line.Len() > 0 {
		f.newLine()
	}
}

// newLine ends the line, empty or not.
func (f *flattener) newLine() {
	text := strings.ReplaceAll(f.line.String(), "\u00a0", " ")
	f.line.Reset()
	f.space = false
	empty := strings.TrimSpace(text) == ""
	if f.blank && f.lines > 0 && !empty && f.last >= 0 {
		f.write("", min(f.depth, f.last))
	}
	f.blank = f.blank && empty
	f.write(text, f.depth)
	f.last = f.depth
	if empty {
		f.last = -1
	}
}

func (f *flattener) write(text string, depth int) {
	f.lines++
	f.b.WriteString(strings.TrimRight(quotePrefix(depth)+text, " ") + "\n")
}

// ownLine writes a separate line.
func (f *flattener) ownLine(s string) {
	f.endLine()
	f.line.WriteString(s)
	f.endLine()
}

var (
	quoteNames      = expression(`(?i)(?:^|[\s_])`, "quote names", `(?:\s|$)`)
	quoteStartNames = expression(`(?i)(?:^|[\s_])`, "quote start names", `(?:\s|$)`)
	signatureNames  = expression(`(?i)(?:^|\s)(?:x_)?`, "signature names", `(?:\s|$)`)
	hidingRule      = pattern(`(?i)display\s*:\s*none|visibility\s*:\s*hidden|font-size\s*:\s*0(?:[^.\d]|$)|mso-hide|opacity\s*:\s*0(?:[^.\d]|$)`)
)

// namesOf joins the attributes that identify an element.
func namesOf(n *html.Node) string {
	var names []string
	for _, a := range n.Attr {
		switch a.Key {
		case "id", "class", "name":
			names = append(names, a.Val)
		case "data-signatureblock":
			names = append(names, a.Key)
		}
	}
	return strings.Join(names, " ")
}

// textIn is the text directly inside an element.
func textIn(n *html.Node) string {
	var b strings.Builder
	for c := n.FirstChild; c != nil; c = c.NextSibling {
		b.WriteString(c.Data)
	}
	return b.String()
}
