package secrets

import (
	"slices"
	"strconv"
	"strings"
)

// finders search for kinds that no keyword announces. Each reads a text once.
var finders = []struct {
	rule *rule
	find func(text string, found func(place))
}{
	{&rule{ID: "card-number", oneValue: true}, findCards},
	{&rule{ID: iban, oneValue: true}, findAccounts},
	{&rule{ID: "discord-bot-token"}, findDiscordTokens},
	{&rule{ID: "seed-phrase"}, findPhrases},
}

// iban is found, but never hidden: a person must see where money goes.
const iban = "iban"

var digitBytes = newByteSet(isDigit)

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// issuers are the first digits of card numbers, from and to, with the possible lengths.
var issuers = []struct {
	from, to string
	lengths  []int
}{
	{"34", "34", []int{15}},
	{"37", "37", []int{15}},
	{"300", "305", []int{14}},
	{"36", "36", []int{14}},
	{"38", "39", []int{14}},
	{"3528", "3589", []int{16}},
	{"4", "4", []int{16}},
	{"51", "55", []int{16}},
	{"2200", "2204", []int{16}},
	{"2221", "2720", []int{16}},
	{"6011", "6011", []int{16}},
	{"62", "62", []int{16, 17, 18, 19}},
	{"644", "659", []int{16}},
}

// groupings are the lengths of the groups of a card number.
var groupings = []string{"14", "15", "16", "17", "18", "19", "4 4 4 4", "4 6 5", "4 6 4", "4 4 4 4 3", "6 13"}

const maxGroups = 5

// findCards finds numbers of payment cards: an issuer's, in a usual grouping, with a right last digit.
func findCards(text string, found func(place)) {
	var row [][2]int // groups of digits, each one character after the other
	flush := func() {
		for len(row) > 0 {
			n := cardAt(text, row[:min(len(row), maxGroups)])
			if n > 0 {
				found(place{row[0][0], row[n-1][1], row[0][0]})
			}
			row = row[max(n, 1):]
		}
	}
	for start, end := range digitBytes.runs(text) {
		if n := len(row); n > 0 && (start != row[n-1][1]+1 || text[start-1] != ' ' && text[start-1] != '-') {
			flush()
		}
		row = append(row, [2]int{start, end})
	}
	flush()
}

// cardAt is the number of groups of the longest card number at the start of row, 0 if there is none.
func cardAt(text string, row [][2]int) int {
	begin := row[0][0]
	if row[0][1]-begin > 19 || begin > 0 && inNumber[text[begin-1]] {
		return 0
	}
	for n := len(row); n > 0; n-- {
		end := row[n-1][1]
		if end-begin < 14 || end-begin > 19+maxGroups || !slices.Contains(groupings, lengthsOf(text, row[:n])) || continues(text, end) {
			continue
		}
		number := strings.NewReplacer(" ", "", "-", "").Replace(text[begin:end])
		if isCard(number) && !otherNumber().MatchString(text[max(0, begin-24):begin]) {
			return n
		}
	}
	return 0
}

// lengthsOf are the lengths of groups, "" if they are separated in different ways.
func lengthsOf(text string, row [][2]int) string {
	var all []string
	for i, g := range row {
		if i > 1 && text[g[0]-1] != text[row[1][0]-1] {
			return ""
		}
		all = append(all, strconv.Itoa(g[1]-g[0]))
	}
	return strings.Join(all, " ")
}

// inNumber are characters after which a number goes on.
var inNumber = newByteSet(func(c byte) bool { return isAlnum(c) || strings.IndexByte("_./+-", c) >= 0 })

// otherNumber stands before the number of something else.
var otherNumber = lazy(`(?i)(?:\b(?:order|id|ref|reference|ticket|serial|parcel|invoice|tracking|message|timestamp)(?:[ _-]?(?:id|no|nr|number))?|(?:_|-|[a-z])(?-i:Id|ID|id))["']?[\s:=#.]{0,3}["']?$`)

func isAlnum(c byte) bool { return isDigit(c) || letterBytes[c] }

// continues says whether a number goes on at a place, as a word or a fraction.
func continues(text string, at int) bool {
	return at < len(text) && (isAlnum(text[at]) || text[at] == '_' || text[at] == '-') || at+1 < len(text) && text[at] == '.' && isDigit(text[at+1])
}

func isCard(number string) bool {
	for _, x := range issuers {
		first := number[:len(x.from)]
		for _, n := range x.lengths {
			if n == len(number) && x.from <= first && first <= x.to {
				return luhn(number) == 0
			}
		}
	}
	return false
}

// luhn is the check digit of ISO/IEC 7812-1, 0 for a valid number.
func luhn(number string) (sum int) {
	for i := range number {
		d := int(number[len(number)-1-i] - '0')
		if i%2 == 1 {
			d *= 2
		}
		sum += d/10 + d%10
	}
	return sum % 10
}

// accounts are the lengths of IBANs (ISO 13616), by country.
var accounts = func() map[string]int {
	all := map[string]int{}
	for _, list := range strings.Split("15 NO|16 BE|18 DK FK FI FO GL NL SD|19 MK SI|20 AT BA EE KZ XK LT LU MN|21 HR LV LI CH|"+
		"22 BG BH CR GE DE IE ME RS GB VA|23 TL GI IQ IL OM SO AE|24 AD CZ MD PK RO SA SK ES SE TN VG|25 LY PT ST|26 IS TR DZ|"+
		"27 BI DJ FR GR IT MR MC SM|28 AL AZ BY CY DO SV GT HU LB NI PL|29 BR EG PS QA UA|30 JO KW MU YE|31 MT SC|32 LC|33 RU", "|") {
		fields := strings.Fields(list)
		for _, country := range fields[1:] {
			all[country], _ = strconv.Atoi(fields[0])
		}
	}
	return all
}()

// findAccounts finds IBANs: of a country's length, with right check digits.
func findAccounts(text string, found func(place)) {
	for start, end := range digitBytes.runs(text) { // the check digits
		at := start - 2
		if at < 0 || end < start+2 || !isUpper(text[at]) || !isUpper(text[at+1]) || at > 0 && isAlnum(text[at-1]) {
			continue
		}
		want := accounts[text[at:start]]
		if want == 0 {
			continue
		}
		var number []byte
		i := at
		for ; i < len(text) && len(number) < want; i++ {
			if isUpper(text[i]) || isDigit(text[i]) {
				number = append(number, text[i])
			} else if text[i] != ' ' || len(number)%4 != 0 || text[i-1] == ' ' {
				break
			}
		}
		if len(number) == want && (i == len(text) || !isAlnum(text[i])) && mod97(number) == 1 {
			found(place{at, i, at})
		}
	}
}

func isUpper(c byte) bool { return 'A' <= c && c <= 'Z' }

// mod97 is the check of ISO 7064: 1 for a valid IBAN.
func mod97(number []byte) (rest int) {
	for i := range number {
		c := number[(i+4)%len(number)]
		if isDigit(c) {
			rest = (rest*10 + int(c-'0')) % 97
		} else {
			rest = (rest*100 + int(c-'A') + 10) % 97
		}
	}
	return rest
}

// A token of a Discord bot has three parts. The first is the base64 of the digits of its ID.
var discord = lazy(`^([MNO][\w-]{22,27})\.[\w-]{6}\.[\w-]{27,45}`)

const discordID = 28 // characters of the first part, at most

func findDiscordTokens(text string, found func(place)) {
	for at := 0; ; at++ {
		i := strings.IndexByte(text[at:], '.')
		if i < 0 {
			return
		}
		at += i
		if at+7 >= len(text) || text[at+7] != '.' || at < 23 {
			continue
		}
		start := at
		for start > max(0, at-discordID) && isNamed(text[start-1]) && text[start-1] != '=' {
			start--
		}
		if m := discord().FindStringSubmatch(text[start:min(len(text), at+60)]); m != nil && strings.Trim(exactBase64(m[1]), "0123456789") == "" && exactBase64(m[1]) != "" {
			found(place{start, start + len(m[0]), start})
			at += 7
		}
	}
}
