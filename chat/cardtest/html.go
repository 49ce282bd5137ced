package cardtest

import (
	"regexp"
	"slices"
	"strings"

	"golang.org/x/net/html"
)

var (
	blockTags = strings.Fields("address article aside blockquote body dd details div dl dt fieldset figure footer form h1 h2 h3 h4 h5 h6 header hr li main nav ol option p pre section summary table tr ul button label")
	noTags    = strings.Fields("head script style template noscript title input select textarea svg img")
	keeping   = regexp.MustCompile(`white-space:\s*(pre|break-spaces)`)
	cssRule   = regexp.MustCompile(`([^{}]+)\{([^{}]*)\}`)
	cssClass  = regexp.MustCompile(`\.([A-Za-z0-9_-]+)\s*(?:,|$)`)
)

// VisibleHTML is what a person sees of a page without touching it. Elements with one of the classes that the
// style sheet gives white-space: pre keep their blanks, as do those with that style of their own. Lines in a
// blockquote begin with a bar, if they do not yet.
func VisibleHTML(page, css string) string {
	doc, err := html.Parse(strings.NewReader(page))
	if err != nil {
		return ""
	}
	w := &visibleWriter{}
	for _, m := range cssRule.FindAllStringSubmatch(css, -1) {
		if keeping.MatchString(m[2]) {
			for _, c := range cssClass.FindAllStringSubmatch(strings.TrimSpace(m[1]), -1) {
				w.keep = append(w.keep, c[1])
			}
		}
	}
	w.node(doc, false, false)
	w.endLine()
	return strings.Join(w.lines, "\n")
}

type visibleWriter struct {
	keep  []string // classes that keep blanks
	lines []string
	line  string
	bar   bool // the line is in a quotation
}

func attr(n *html.Node, key string) (string, bool) {
	for _, a := range n.Attr {
		if a.Key == key {
			return a.Val, true
		}
	}
	return "", false
}

func (w *visibleWriter) node(n *html.Node, pre, quote bool) {
	if n.Type == html.TextNode {
		w.text(n.Data, pre, quote)
		return
	}
	if _, hidden := attr(n, "hidden"); hidden || slices.Contains(noTags, n.Data) {
		return
	}
	if n.Data == "br" {
		w.newLine(quote)
		return
	}
	style, _ := attr(n, "style")
	class, _ := attr(n, "class")
	pre = pre || n.Data == "pre" || keeping.MatchString(style) || slices.ContainsFunc(strings.Fields(class), func(c string) bool { return slices.Contains(w.keep, c) })
	quote = quote || n.Data == "blockquote"
	block := slices.Contains(blockTags, n.Data)
	if block {
		w.endLine()
	}
	_, open := attr(n, "open")
	for c := n.FirstChild; c != nil; c = c.NextSibling {
		if n.Data != "details" || open || c.Data == "summary" {
			w.node(c, pre, quote)
		}
	}
	if block {
		w.endLine()
	}
}

func (w *visibleWriter) text(s string, pre, quote bool) {
	if pre {
		for i, part := range strings.Split(s, "\n") {
			if i > 0 {
				w.newLine(quote)
			}
			w.line += part
			w.bar = w.bar || quote
		}
		return
	}
	for _, r := range s {
		if strings.ContainsRune(" \t\n\r\f", r) {
			if w.line != "" && !strings.HasSuffix(w.line, " ") {
				w.line += " "
			}
			continue
		}
		w.line += string(r)
	}
	w.bar = w.bar || quote
}

func (w *visibleWriter) endLine() {
	if w.line != "" {
		w.newLine(w.bar)
	}
}

func (w *visibleWriter) newLine(quote bool) {
	line := strings.TrimRight(w.line, " ")
	if quote && !strings.HasPrefix(line, "│") {
		line = strings.TrimRight("│ "+line, " ")
	}
	w.lines = append(w.lines, line)
	w.line, w.bar = "", false
}
