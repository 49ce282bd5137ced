package chat

import "strings"

// CutCommand cuts a text behind the words of a command, in any language, and returns the command in English; "" if
// the text begins with none. broken says that a line break follows the words.
func CutCommand(text string) (command, rest string, broken bool) {
	lower, end := lowerLatin(text), 0
	for _, language := range Languages() {
		for name, words := range catalog(language).CommandWords {
			for phrase := range words {
				after, ok := strings.CutPrefix(lower, phrase)
				if ok && len(phrase) > end && (after == "" || strings.ContainsRune(white, rune(after[0]))) {
					command, end = name, len(phrase)
				}
			}
		}
	}
	_, rest, broken = cutWhite(text[end:])
	return command, rest, broken
}
