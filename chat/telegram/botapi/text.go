package botapi

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/go-telegram/bot/models"
)

// Telegram's limits on messages.
const (
	maxText     = 4096    // UTF-16 code units of a message
	maxCaption  = 1024    // … of a document's caption
	maxAnswer   = 200     // … of the answer to a callback query
	maxTextSize = 1 << 15 // bytes, checked first
)

// utf16Len is the length of a text as Telegram counts it.
func utf16Len(s string) int { return len(utf16.Encode([]rune(s))) }

// checkText refuses texts that Telegram refuses, or would change.
func checkText(text string, limit int, tooLong string) {
	switch {
	case len(text) > maxTextSize:
		panic(badRequest("text is too long"))
	case !utf8.ValidString(text):
		panic(badRequest("strings must be encoded in UTF-8"))
	case strings.TrimLeft(text, " \n\t\r\u200b\u200c\u200d\u200e\u200f\ufeff\u00a0") == "":
		panic(badRequest("text must be non-empty"))
	case utf16Len(text) > limit:
		panic(badRequest("%s", tooLong))
	}
	if kept := normalized(text); kept != text {
		panic(strict("Telegram would show %q instead of %q", kept, text))
	}
}

var (
	controls = regexp.MustCompile(`[\x00-\x09\x0b\x0c\x0e-\x1f]`)
	dropped  = regexp.MustCompile(`[\r\x{2028}-\x{202e}\x{0333}\x{033f}\x{030a}]`)
	marks    = regexp.MustCompile(`[\x{200e}\x{200f}]+`)
)

// normalized is what Telegram makes of a text: control characters become spaces, some others are removed, only
// the last of several direction marks stays, and the ends are trimmed.
func normalized(text string) string {
	text = controls.ReplaceAllString(text, " ")
	text = dropped.ReplaceAllString(text, "")
	text = marks.ReplaceAllStringFunc(text, func(run string) string {
		n := utf8.RuneCountInString(run)
		return strings.Repeat("\u200c", n-1) + run[len(run)-3:]
	})
	return strings.Trim(text, " \n")
}

// Which entities may contain one another, from "Formatting options" in the documentation.
var (
	splittable = []string{"bold", "italic", "underline", "strikethrough", "spoiler"}
	quotes     = []string{"blockquote", "expandable_blockquote"}
	verbatim   = []string{"code", "pre"}
	automatic  = []string{
		"mention", "hashtag", "cashtag", "bot_command", "url", "email", "phone_number", "bank_card_number",
	}
)

// checkEntities refuses entities that Telegram refuses, with its texts, and those that it would silently drop
// or change.
func checkEntities(text string, entities []Entity) {
	if len(entities) > 100 {
		panic(strict("Telegram shows the first 100 entities only, got %d", len(entities)))
	}
	for i := range entities {
		checkEntity(text, &entities[i])
	}
	for i, a := range entities {
		for _, b := range entities[i+1:] {
			if why := conflictOf(a, b); why != "" {
				panic(strict("%s %d+%d and %s %d+%d: %s", a.Type, a.Offset, a.Length, b.Type, b.Offset, b.Length, why))
			}
		}
	}
}

func checkEntity(text string, e *Entity) {
	known := slices.Concat(splittable, quotes, verbatim, automatic)
	switch {
	case !slices.Contains(known, string(e.Type)):
		panic(badRequest("can't parse MessageEntity: Unsupported type specified"))
	case e.Offset < 0 || e.Offset > 1_000_000:
		panic(badRequest("receive an entity with incorrect offset %d", e.Offset))
	case e.Length < 0 || e.Length > 1_000_000:
		panic(badRequest("receive an entity with incorrect length %d", e.Length))
	case e.Length == 0:
		panic(strict("Telegram drops an empty entity: %s at %d", e.Type, e.Offset))
	}
	checkSpan(text, e)
	switch {
	case slices.Contains(automatic, string(e.Type)):
		panic(strict("Telegram finds every %s by itself and ignores sent ones", e.Type))
	case *e != Entity{Type: e.Type, Offset: e.Offset, Length: e.Length}:
		panic(strict("%s has more than an offset and a length", e.Type))
	}
}

// checkSpan checks that the entity begins and ends in the text and not within a character.
func checkSpan(text string, e *Entity) {
	at, begins, ends := 0, false, false
	for pos, r := range text {
		begins = begins || at == e.Offset
		ends = ends || at == e.Offset+e.Length
		at += utf16.RuneLen(r)
		if !begins && at > e.Offset {
			panic(badRequest("entity begins in a middle of a UTF-16 symbol at byte offset %d", pos))
		}
		if !ends && at > e.Offset+e.Length {
			panic(badRequest("entity beginning at UTF-16 offset %d ends in a middle of a UTF-16 symbol at byte offset %d", e.Offset, pos))
		}
	}
	switch {
	case e.Offset >= at:
		panic(badRequest("entity begins after the end of the text at UTF-16 offset %d", e.Offset))
	case e.Offset+e.Length > at:
		panic(badRequest("entity beginning at UTF-16 offset %d ends after the end of the text at UTF-16 offset %d", e.Offset, e.Offset+e.Length))
	}
}

// conflictOf returns why two entities cannot be combined, or "".
func conflictOf(a, b Entity) string {
	if b.Offset < a.Offset || b.Offset == a.Offset && b.Length > a.Length {
		a, b = b, a
	}
	aEnd, bEnd := a.Offset+a.Length, b.Offset+b.Length
	is := func(e Entity, kinds []string) bool { return slices.Contains(kinds, string(e.Type)) }
	switch {
	case aEnd <= b.Offset:
		return ""
	case bEnd > aEnd:
		return "they overlap, and neither contains the other"
	case is(a, verbatim) || is(b, verbatim) && !is(a, quotes):
		return "code and pre contain no other entity and are part of none but a quotation"
	case is(a, quotes) && is(b, quotes):
		return "quotations cannot be nested"
	case a.Offset == b.Offset && a.Length == b.Length && a.Type == b.Type:
		return "duplicate entity"
	}
	return ""
}

// automaticPatterns find what Telegram makes tappable by itself. They match more than Telegram does: agent text
// on a card must not match at all.
var automaticPatterns = []struct {
	kind    models.MessageEntityType
	pattern *regexp.Regexp
}{
	{"email", regexp.MustCompile(`[\w.+-]+@[\w-]+(?:\.[\w-]+)+`)},
	{"url", regexp.MustCompile(`(?i)\b(?:[a-z][a-z0-9+.-]*://[^\s]+|(?:[\pL\pN](?:[\pL\pN-]*[\pL\pN])?\.)+[\pL]{2,}(?:[:/?#][^\s]*)?|\d{1,3}(?:\.\d{1,3}){3}(?:[:/?#][^\s]*)?)`)},
	{"mention", regexp.MustCompile(`\B@[A-Za-z0-9_]{2,32}\b`)},
	{"bot_command", regexp.MustCompile(`(?:^|[^\w/<>])(/[A-Za-z0-9_]{1,64}(?:@\w{3,32})?)\b`)},
	{"hashtag", regexp.MustCompile(`\B#[\pL\pN_·]*[\pL_·][\pL\pN_·]*`)},
	{"cashtag", regexp.MustCompile(`\B\$(?:1INCH|[A-Z]{1,8})\b`)},
	{"phone_number", regexp.MustCompile(`\+\d[\d ()-]{7,15}\d`)},
	{"bank_card_number", regexp.MustCompile(`\b\d{4}(?:[ -]?\d{4}){3}\b`)},
}

// withAutomatic adds the entities that Telegram finds by itself, outside of code.
func withAutomatic(text string, entities []Entity) []Entity {
	all := slices.Clone(entities)
	taken := slices.DeleteFunc(slices.Clone(entities), func(e Entity) bool {
		return !slices.Contains(verbatim, string(e.Type))
	})
	for _, f := range automaticPatterns {
		for _, at := range f.pattern.FindAllStringSubmatchIndex(text, -1) {
			at = at[len(at)-2:] // the group, or the complete match
			e := Entity{Type: f.kind, Offset: utf16Len(text[:at[0]]), Length: utf16Len(text[at[0]:at[1]])}
			if !slices.ContainsFunc(taken, func(t Entity) bool {
				return e.Offset < t.Offset+t.Length && t.Offset < e.Offset+e.Length
			}) {
				all, taken = append(all, e), append(taken, e)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b Entity) int { return a.Offset - b.Offset })
	return all
}

// forbidden is a refusal because of the chat.
func forbidden(format string, args ...any) *refusal {
	return &refusal{Code: 403, Description: "Forbidden: " + fmt.Sprintf(format, args...)}
}

// badRequest is a refusal with Telegram's own text.
func badRequest(format string, args ...any) *refusal {
	return &refusal{Code: 400, Description: "Bad Request: " + fmt.Sprintf(format, args...)}
}

// strict refuses something that Telegram would silently ignore, drop or change.
func strict(format string, args ...any) *refusal {
	return badRequest("strict fake: "+format, args...)
}
