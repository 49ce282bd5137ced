package chat

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/approval/facts"
)

// urls displays the host alone, then the URL. In a list the URLs are numbered.
func (t typedValue) urls(v approval.Raw) ([]Line, bool) {
	texts, list, ok := textsOf(v)
	lines := []Line{t.head()}
	if list {
		lines[0] = t.count(len(texts))
	}
	for i, s := range texts {
		place, number := facts.PlaceOf(s), ""
		if list {
			number = strconv.Itoa(i+1) + ". "
		}
		if !place.Odd {
			lines = append(lines, Line{LineStrong, withBar(Escape(place.Host))})
		}
		lines = append(lines, Line{LineCode, withBar(number + t.whole(s))})
		lines = append(lines, t.placeFlags(place)...)
	}
	return lines, ok
}

// hosts displays hosts, each strong.
func (t typedValue) hosts(v approval.Raw) ([]Line, bool) {
	texts, list, ok := textsOf(v)
	if !ok {
		return nil, false
	}
	if !list {
		return append(t.inline(LineStrong, t.whole(texts[0])), t.placeFlags(facts.HostPlace(texts[0]))...), true
	}
	lines := []Line{t.count(len(texts))}
	for _, s := range texts {
		lines = append(lines, Line{LineStrong, withBar(t.whole(s))})
		lines = append(lines, t.placeFlags(facts.HostPlace(s))...)
	}
	return lines, true
}

// placeFlags says in one line what is unusual about a host.
func (t typedValue) placeFlags(p facts.Place) []Line {
	flags := t.flagsBeside(p)
	for _, f := range []struct {
		is   bool
		text string
	}{
		{p.Odd, t.Values.Odd},
		{p.User, t.Values.User},
		{p.IP, t.Values.Address},
		{p.Port != "", Format(t.Values.Port, "port", Escape(p.Port))},
		{p.Scheme == "http", t.Values.Unencrypted},
	} {
		if f.is {
			flags = append(flags, f.text)
		}
	}
	if len(flags) == 0 {
		return nil
	}
	return t.remark("⚠ " + strings.Join(flags, ", "))
}

// nameFlags says what is unusual about a domain name.
func (r renderer) nameFlags(p facts.Place) (flags []string) {
	name := cmp.Or(p.Written, p.Unicode, p.Host)
	switch {
	case p.Written != "":
		flags = append(flags, Format(r.Values.ReadAs, "name", Escape(name), "ascii", Escape(p.Host)))
	case p.Unicode != "":
		flags = append(flags, Format(r.Values.Punycode, "name", Escape(name)))
	case p.Punycode:
		flags = append(flags, r.Values.BadPunycode)
	}
	// Scripts are mixed within a word, and between a name and the letters of its domain.
	if scripts := scriptsOf(name); len(scripts) > 1 {
		flags = append(flags, Format(r.Values.Mixed, "scripts", strings.Join(scripts, ", ")))
	}
	return flags
}

// flagsBeside is nameFlags of a name that the warnings do not name.
func (r renderer) flagsBeside(p facts.Place) []string {
	if slices.Contains(r.suspects, written(p)) {
		return nil
	}
	return r.nameFlags(p)
}

// written is the name of a place as the request has it.
func written(p facts.Place) string { return cmp.Or(p.Written, p.Host) }

// unusualNames are the different domain names among the values that have flags.
func (r renderer) unusualNames() (names []string) {
	seen := map[string]bool{"": true}
	for _, c := range r.calls() {
		fields, _ := codec.Fields(c.p.RequestData) // on an error there are none
		for _, f := range fields {
			for _, name := range c.namesIn(f) {
				if !seen[name] && len(r.nameFlags(facts.HostPlace(name))) > 0 {
					names = append(names, name)
				}
				seen[name] = true
			}
		}
	}
	return names
}

// namesIn are the hosts or the recipients' domains in a value, none if a part of it is
// withheld.
func (r renderer) namesIn(f codec.Field) (names []string) {
	texts, _, _ := textsOf(f.Value)
	if (typedValue{renderer: r}).withheldIn(f.Value) != "" {
		return nil
	}
	switch r.argument(f).Type {
	case facts.TypeURL:
		for _, s := range texts {
			names = append(names, written(facts.PlaceOf(s)))
		}
	case facts.TypeHost:
		for _, s := range texts {
			names = append(names, written(facts.HostPlace(s)))
		}
	case facts.TypeRecipients:
		for _, one := range recipientsIn(texts) {
			names = append(names, cmp.Or(one.Written, one.Domain))
		}
	}
	return names
}

// nameWarnings says what is unusual about the suspects, and how many more there are: their
// flags stand beside them.
func (r renderer) nameWarnings(unusual int) (lines []string) {
	for _, name := range r.suspects {
		p := facts.HostPlace(name)
		line := strings.Join(r.nameFlags(p), ", ")
		if p.Written == "" { // else the flags name it
			kept := clip(name, maxValue)
			line = Escape(kept) + r.cutMark(name[len(kept):]) + ": " + line
		}
		lines = append(lines, "⚠ "+line)
	}
	if more := unusual - len(r.suspects); more > 0 {
		lines = append(lines, "⚠ "+Format(r.Evidence.More, "n", strconv.Itoa(more)))
	}
	return lines
}

// isInSuspect reports whether the warning about a name tells this word of mixedWords.
func (r renderer) isInSuspect(word string) bool {
	return slices.ContainsFunc(r.suspects, func(name string) bool {
		return slices.Contains(slices.Concat(mixedWords(name, ""), mixedWords(name, ".-@")), word)
	})
}

// group holds the recipients of one domain, by their numbers.
type group struct {
	domain  string
	place   facts.Place // of the domain as written
	outside bool
	members []int
}

// recipients displays how many there are, and each below its domain, numbered in the
// order of the value.
func (t typedValue) recipients(v approval.Raw) ([]Line, bool) {
	texts, list, ok := textsOf(v)
	if !ok {
		return nil, false
	}
	var all []facts.Recipient
	exact := true
	for _, s := range texts {
		some, whole := facts.Recipients(s)
		exact = exact && whole && (!list || len(some) == 1)
		all = append(all, some...)
	}
	groups := t.groups(all)
	if !list && len(all) == 1 && all[0].Bare() {
		lines := t.inline(LineStrong, Escape(texts[0]))
		if g := groups[0]; g.outside || len(t.flagsBeside(g.place)) > 0 {
			lines = append(lines, t.groupLine(g))
		}
		return lines, true
	}
	lines := []Line{t.count(len(all))}
	if !list {
		lines[0] = Line{LineLabel, t.label + ": " + Format(t.Values.OneText, "people", t.number(len(all)))}
	}
	for _, g := range groups {
		lines = append(lines, t.groupLine(g))
		lines = append(lines, t.members(g, all)...)
	}
	lines = append(lines, t.repeated(all)...)
	if exact {
		return lines, true
	}
	lines = append(lines, Line{LineLabel, t.Values.AsSent})
	for _, s := range texts {
		lines = append(lines, Line{LineCode, withBar(Quote(s))})
	}
	return lines, true
}

// groups collects the recipients by domain: invalid ones, then outsiders, each in the
// order of the value.
func (t typedValue) groups(all []facts.Recipient) []group {
	var groups []group
	at := map[string]int{}
	for i, r := range all {
		written := cmp.Or(r.Written, r.Domain)
		n, known := at[written]
		if !known {
			n = len(groups)
			at[written] = n
			outside := len(t.p.OwnDomains) > 0 && !facts.IsOwnDomain(r.Domain, t.p.OwnDomains)
			groups = append(groups, group{domain: r.Domain, place: facts.HostPlace(written), outside: outside})
		}
		groups[n].members = append(groups[n].members, i)
	}
	rank := func(g group) int {
		switch {
		case g.domain == "":
			return 0
		case g.outside:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(groups, func(a, b group) int { return rank(a) - rank(b) })
	return groups
}

// number says how many recipients there are.
func (t typedValue) number(n int) string {
	if n == 1 {
		return t.Values.OnePerson
	}
	return Format(t.Values.People, "n", strconv.Itoa(n))
}

// people says how many recipients there are, and how many of them are outsiders.
func (t typedValue) people(n int, groups []group) string {
	people, outside := t.number(n), 0
	for _, g := range groups {
		if g.outside {
			outside += len(g.members)
		}
	}
	own := make([]string, len(t.p.OwnDomains))
	for i, d := range t.p.OwnDomains {
		own[i] = Escape(d)
	}
	domains := strings.Join(own, ", ")
	switch {
	case outside > 0:
		return Format(t.Values.Outside, "people", people, "n", strconv.Itoa(outside), "domains", domains)
	case n == 0:
		return people
	case len(own) > 0:
		return Format(t.Values.AllInside, "people", people, "domains", domains)
	}
	switch {
	case groups[0].domain == "": // not all have one
		return people
	case len(groups) == 1:
		return Format(t.Values.AtDomain, "people", people, "domain", Escape(groups[0].domain))
	}
	return Format(t.Values.AtDomains, "people", people, "n", strconv.Itoa(len(groups)))
}

// groupLine is a domain with how many recipients are there.
func (t typedValue) groupLine(g group) Line {
	n := strconv.Itoa(len(g.members))
	if g.domain == "" {
		return Line{LineWarn, Format(t.Values.NotAddress, "n", n)}
	}
	flags := t.flagsBeside(g.place)
	line := strings.Join(append([]string{Escape(g.domain) + ": " + n}, flags...), ", ")
	if g.outside || len(flags) > 0 {
		return Line{LineWarn, "⚠ " + line}
	}
	return Line{LineText, "· " + line}
}

// members are the recipients of a group, each once, behind its numbers: "1, 3-4. 3 × a@b.c".
func (t typedValue) members(g group, all []facts.Recipient) (lines []Line) {
	numbers, order := map[string][]int{}, []string(nil)
	for _, i := range g.members {
		text := all[i].Text
		if numbers[text] == nil {
			order = append(order, text)
		}
		numbers[text] = append(numbers[text], i+1)
	}
	for _, text := range order {
		line := ranges(numbers[text]) + ". "
		if n := len(numbers[text]); n > 1 {
			line += strconv.Itoa(n) + " × "
		}
		lines = append(lines, Line{LineRecipient, withBar(line + t.whole(text))})
	}
	return lines
}

// ranges writes ascending numbers: "1, 3-5".
func ranges(numbers []int) string {
	var parts []string
	for i := 0; i < len(numbers); {
		end := i + 1
		for end < len(numbers) && numbers[end] == numbers[end-1]+1 {
			end++
		}
		part := strconv.Itoa(numbers[i])
		if end > i+1 {
			part += "-" + strconv.Itoa(numbers[end-1])
		}
		parts, i = append(parts, part), end
	}
	return strings.Join(parts, ", ")
}

// repeated names the numbers of the recipients that have the same address in different texts.
func (t typedValue) repeated(all []facts.Recipient) (lines []Line) {
	numbers, texts := map[string][]int{}, map[string]map[string]bool{}
	var order []string
	for i, r := range all {
		key := strings.ToLower(r.Address)
		if key == "" {
			continue
		}
		if texts[key] == nil {
			order, texts[key] = append(order, key), map[string]bool{}
		}
		numbers[key], texts[key][r.Text] = append(numbers[key], i+1), true
	}
	for _, key := range order {
		if len(texts[key]) > 1 {
			lines = append(lines, t.remark(Format(t.Values.SameAddress, "numbers", ranges(numbers[key])))...)
		}
	}
	return lines
}

// notAddresses are the warnings about recipients that are no mail addresses. In a chat they
// need not be.
func (r renderer) notAddresses() (lines []string) {
	if r.p.Plan != nil {
		for _, c := range r.calls() {
			lines = append(lines, c.notAddresses()...)
		}
		return r.few(lines)
	}
	fields, _ := codec.Fields(r.p.RequestData) // on an error there are none
	for _, f := range fields {
		t := typedValue{renderer: r, name: f.Name}
		isMail := r.argument(f).Type == facts.TypeRecipients && !strings.HasPrefix(r.p.Capability, "channel:")
		if !isMail || t.withheldIn(f.Value) != "" {
			continue
		}
		var names []string
		texts, _, _ := textsOf(f.Value)
		for _, to := range recipientsIn(texts) {
			if to.Address == "" && !slices.Contains(names, to.Text) {
				names = append(names, to.Text)
			}
		}
		if len(names) == 0 {
			continue
		}
		shown := t.names(names[:min(len(names), maxFlagged)])
		if more := len(names) - maxFlagged; more > 0 {
			shown += ", " + Format(r.Evidence.More, "n", strconv.Itoa(more))
		}
		lines = append(lines, Format(r.Values.NotAddresses, "name", r.name(f.Name), "names", shown))
	}
	return lines
}
