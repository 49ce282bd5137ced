package email

import (
	_ "embed"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

//go:embed words.txt
var wordsFile string

// wordLists are the lists of words.txt, by name.
var wordLists = sync.OnceValue(func() map[string][]string {
	lists, name := map[string][]string{}, ""
	for line := range strings.SplitSeq(wordsFile, "\n") {
		if title, ok := strings.CutPrefix(line, "== "); ok {
			name = title
		} else if line != "" && !strings.HasPrefix(line, "#") {
			lists[name] = append(lists[name], strings.ReplaceAll(line, "␣", " "))
		}
	}
	return lists
})

// phrases are beginnings of sentences, by first letter.
type phrases map[rune][]string

// list is one of the lists in words.txt, built on first use.
func list(name string) func() phrases {
	return sync.OnceValue(func() phrases {
		p := phrases{}
		for _, s := range wordLists()[name] {
			r, _ := utf8.DecodeRuneInString(s)
			p[r] = append(p[r], s)
		}
		return p
	})
}

// matchesStart says whether s begins with one of the phrases; contains whether it is one.
func (p phrases) matchesStart(s string) bool {
	r, _ := utf8.DecodeRuneInString(s)
	return hasPrefixOf(s, p[r])
}

func (p phrases) contains(s string) bool {
	r, _ := utf8.DecodeRuneInString(s)
	return slices.Contains(p[r], s)
}

func hasPrefixOf(s string, list []string) bool {
	return slices.ContainsFunc(list, func(p string) bool { return strings.HasPrefix(s, p) })
}

func containsOf(s string, list []string) bool {
	return slices.ContainsFunc(list, func(p string) bool { return strings.Contains(s, p) })
}

// greeting is a greeting or thanks before a sentence on the same line.
const greeting = `((hello|hi|dear|thank|good|hallo|liebe|sehr geehrte|guten|vielen dank|danke|bonjour|merci|madame|cher|buongiorno|grazie|gentile|salve|hola|gracias|estimad|olá|obrigad|prezad|beste|geachte|dank|bedankt|hej|tack|tak|hei|kiitos|dzień|dziękuję|szanown|dobrý|děkuji|tisztelt|köszön|bună|mulțumesc|merhaba|teşekkür|γεια|ευχαριστ|здравствуйте|спасибо|добрый|добрий|дякую)[^.!]{0,80}[.,!:] ?)?`

// expression matches one of a list's expressions between two others. After "~ " an
// expression may follow a greeting.
func expression(before, name, after string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp {
		all := strings.ReplaceAll("|"+strings.Join(wordLists()[name], "|"), "|~ ", "|"+greeting)
		return regexp.MustCompile(before + `(?:` + all[1:] + `)` + after)
	})
}

// pattern compiles a regular expression on first use: most commands need none.
func pattern(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}
