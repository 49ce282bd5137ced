package email

import (
	"cmp"
	"strconv"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// style holds the declarations of a style attribute, in lower case.
type style map[string]string

func styleOf(n *html.Node) style {
	s := style{}
	for _, a := range n.Attr {
		switch a.Key {
		case "style":
			for d := range strings.SplitSeq(strings.ToLower(a.Val), ";") {
				if k, v, ok := strings.Cut(d, ":"); ok {
					s[strings.TrimSpace(k)] = strings.TrimSpace(strings.ReplaceAll(v, "!important", ""))
				}
			}
		case "hidden":
			s["display"] = "none"
		case "bgcolor":
			s["background-color"] = strings.ToLower(a.Val)
		case "color":
			if n.DataAtom == atom.Font {
				s["color"] = strings.ToLower(a.Val)
			}
		}
	}
	return s
}

var zero = pattern(`^[-+]?0*(?:\.\d+|\.?0*)(?:px|pt|em|rem|%|cm|mm|in|ex|vw|vh)?$`)

// hidden says whether the content is invisible. A size below one counts as zero.
func (s style) hidden() bool {
	size := func(key string) bool { v, ok := s[key]; return ok && v != "" && zero().MatchString(v) }
	return s["display"] == "none" || s["visibility"] == "hidden" || s["visibility"] == "collapse" ||
		s["mso-hide"] == "all" || s["opacity"] == "0" || s["opacity"] == "0.0" || size("font-size") ||
		strings.HasPrefix(s["overflow"], "hidden") && (size("height") || size("max-height") || size("width") || size("max-width")) ||
		strings.HasPrefix(s["text-indent"], "-9") || strings.HasPrefix(s["clip"], "rect(0") ||
		strings.HasPrefix(s["left"], "-9") || strings.HasPrefix(s["top"], "-9")
}

// noMargins says whether a paragraph has no margin. Word removes the margins of its own in
// a style sheet.
func (s style) noMargins(n *html.Node) bool {
	if n.DataAtom == atom.P && strings.Contains(namesOf(n), "Mso") {
		return true
	}
	all := strings.Fields(s["margin"])
	none := len(all) > 0 && zero().MatchString(all[0])
	if v, ok := s["margin-bottom"]; ok {
		none = zero().MatchString(v) && (none || zero().MatchString(s["margin-top"]))
	}
	return none
}

// hasTopBorder recognizes the line that Outlook draws above a quotation.
func (s style) hasTopBorder() bool {
	return strings.Contains(s["border-top"], "solid") || strings.Contains(s["border-top-style"], "solid")
}

// color is red, green and blue.
type color [3]uint8

var paleNames = map[string]string{
	"white": "#ffffff", "snow": "#fffafa", "ivory": "#fffff0", "ghostwhite": "#f8f8ff", "whitesmoke": "#f5f5f5", "floralwhite": "#fffaf0",
	"azure": "#f0ffff", "mintcream": "#f5fffa", "window": "#ffffff", "black": "#000000", "windowtext": "#000000",
}

var colorForm = pattern(`^(?:#([0-9a-f])([0-9a-f])([0-9a-f])[0-9a-f]?|#([0-9a-f]{2})([0-9a-f]{2})([0-9a-f]{2})(?:[0-9a-f]{2})?|rgba?\(\s*(\d{1,3})[\s,]+(\d{1,3})[\s,]+(\d{1,3}).*)$`)

// colorOf parses the color of a declaration; nil if it is unknown.
func colorOf(s string) *color {
	m := colorForm().FindStringSubmatch(cmp.Or(paleNames[s], s))
	if m == nil {
		return nil
	}
	var c color
	for i := range c {
		n, err := strconv.ParseUint(m[1+i]+m[1+i]+m[4+i], 16, 8)
		if m[7+i] != "" {
			n, err = strconv.ParseUint(m[7+i], 10, 16)
		}
		if c[i] = uint8(min(n, 255)); err != nil {
			return nil
		}
	}
	return &c
}

// with is the style of text inside n.
func (l textStyle) with(n *html.Node, s style) textStyle {
	switch n.DataAtom {
	case atom.Pre:
		l.pre = true
	case atom.Del, atom.S, atom.Strike:
		l.struck = true
	}
	if ws := s["white-space"]; ws != "" {
		l.pre = strings.HasPrefix(ws, "pre")
	}
	if strings.Contains(s["text-decoration"], "line-through") || strings.Contains(s["text-decoration-line"], "line-through") {
		l.struck = true
	}
	if v := s["color"]; v != "" {
		l.fg = colorOf(v)
		if v == "transparent" || strings.HasPrefix(v, "rgba(") && strings.HasSuffix(strings.ReplaceAll(v, " ", ""), ",0)") {
			l.fg = l.background()
		}
	}
	for _, k := range []string{"background", "background-color"} {
		if v := s[k]; v != "" && v != "transparent" && v != "none" && v != "inherit" {
			first, _, _ := strings.Cut(v, " url")
			l.bg = colorOf(first)
			if l.bg == nil {
				l.bg = &color{128, 128, 128} // unknown: neither white nor black
			}
		}
	}
	return l
}

// background is the background color; white by default.
func (l textStyle) background() *color {
	if l.bg == nil {
		return &color{255, 255, 255}
	}
	return l.bg
}

// unreadable says whether text has almost the color of its background.
func (l textStyle) unreadable() bool {
	if l.fg == nil {
		return false
	}
	for i, c := range l.background() {
		if d := int(c) - int(l.fg[i]); d > 24 || d < -24 {
			return false
		}
	}
	return true
}
