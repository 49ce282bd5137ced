package email

import (
	_ "embed"
	"regexp"
	"slices"
	"strings"
	"sync"
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

func words(name string) []string { return wordLists()[name] }

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
