package secrets

import _ "embed"

//go:embed seed_words.txt
var seedWords string
