package chat

import (
	"slices"
	"strings"
	"unicode"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/facts"
)

// topic is what a question is about. Facts can answer these topics only.
type topic uint8

const (
	noTopic topic = iota
	aboutWhy
	aboutMail
	aboutPeople // recipients, by mail or in a chat
	aboutFiles
	aboutTables
	aboutHosts
	aboutMoney
	aboutRun   // what would run
	aboutUndo  // whether it can be undone
	aboutWhere // where it goes
)

// questionWords is the closed set of words of one language that a known question
// consists of. A question with any other word may need facts that the gate does
// not have, so it goes to the agent.
type questionWords struct {
	Asks, Whom, Why, Openers, Fillers wordSet
	About                             topicWords
	Run, Undo, Where                  phrases // whole questions
}

type topicWords struct {
	Mail, People, Files, Tables, Hosts, Money wordSet
}

// topic is what the word names, noTopic if it names none.
func (a *topicWords) topic(word string) topic {
	words := []wordSet{aboutMail: a.Mail, aboutPeople: a.People, aboutFiles: a.Files, aboutTables: a.Tables, aboutHosts: a.Hosts, aboutMoney: a.Money}
	return topic(max(0, slices.IndexFunc(words, func(s wordSet) bool { return s[word] })))
}

// wordSet is written as words between spaces.
type wordSet map[string]bool

// UnmarshalText reads the words.
func (s *wordSet) UnmarshalText(text []byte) error {
	*s = wordSet{}
	for w := range strings.FieldsSeq(string(text)) {
		(*s)[w] = true
	}
	return nil
}

// maxAnswered is how many values of a fact an answer lists. The rest is counted.
const maxAnswered = 30

// maxQuestion is the longest known question, in bytes.
const maxQuestion = 200

// topicsOf returns the sorted topics of a question, nil if text is not a question
// in known words.
func topicsOf(text string) []topic {
	if len(text) > maxQuestion {
		return nil
	}
	words := splitQuestion(text)
	if len(words) == 0 {
		return nil
	}
	whole := strings.Join(words, " ")
	for _, language := range Languages() {
		q := &catalog(language).Questions
		switch {
		case q.Run[whole]:
			return []topic{aboutRun}
		case q.Undo[whole]:
			return []topic{aboutUndo}
		case q.Where[whole]:
			return []topic{aboutWhere}
		}
		if found := catalog(language).Questions.topics(words); len(found) > 0 {
			return found
		}
	}
	return nil
}

func (s *questionWords) topics(words []string) (found []topic) {
	if w := words[0]; !s.Asks[w] && !s.Whom[w] && !s.Why[w] && !s.Openers[w] {
		return nil // "do it, which files?" is more than a question
	}
	asks, whom, why := false, false, false
	for _, w := range words {
		about := s.About.topic(w)
		switch {
		case about != noTopic:
			found = append(found, about)
		case s.Why[w]:
			why = true
		case s.Whom[w]:
			asks, whom = true, true
		case s.Asks[w]:
			asks = true
		case !s.Fillers[w]:
			return nil
		}
	}
	slices.Sort(found)
	found = slices.Compact(found)
	switch {
	case why && len(found) == 0 && !asks:
		return []topic{aboutWhy}
	case why || !asks:
		return nil // only the agent knows why it chose these
	case slices.Contains(found, aboutMail) && !whom && !slices.Contains(found, aboutPeople):
		return nil // the question may be about the content of a mail
	}
	return found
}

// splitQuestion returns the words of one sentence in lower case, nil if text has a
// character that belongs to no word, or a second sentence.
func splitQuestion(text string) []string {
	text = strings.NewReplacer("e-mail", "email", "’", "'").Replace(strings.ToLower(text))
	text = strings.TrimRight(text, white+"?!.")
	foreign := func(r rune) bool { return !unicode.IsLetter(r) && !strings.ContainsRune(white+",'", r) }
	if strings.ContainsFunc(text, foreign) {
		return nil
	}
	return strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsLetter(r) })
}

// topicDomains lists the domains of facts about each topic.
var topicDomains = map[topic][]string{
	aboutMail:   {facts.Mail},
	aboutPeople: {facts.Mail, "channel"},
	aboutFiles:  {facts.File},
	aboutTables: {facts.Database},
	aboutHosts:  {facts.Host},
	aboutMoney:  {facts.Money},
}

// factsAnswer answers the topics from facts. ok is false if the facts are not
// complete. Then claimed says that an unverified proof mentions a topic.
func (r renderer) factsAnswer(about []topic) (text string, claimed, ok bool) {
	if r.p.Plan != nil {
		p := *r.p
		p.Facts.Host = r.planEvidence()
		r.p = &p
	}
	var of []facts.Domain
	var none []string
	if len(about) == 1 {
		if text := r.wholeAnswer(about[0]); text != "" {
			return text, false, true
		}
	}
	ok = len(about) > 0
	for _, t := range about {
		found := false
		for _, d := range facts.ByDomain(r.p.Facts) {
			if !slices.Contains(topicDomains[t], d.Domain) {
				continue
			}
			claimed = claimed || len(d.Claimed)+len(d.ClaimedCoverage) > 0
			if !r.complete(&d) {
				ok = false
				continue
			}
			found = true
			of = append(of, d)
		}
		if never := r.neverAbout(t); !found && never != "" && !r.knows(t) {
			none, found = append(none, Format(r.Program.Complete, "facts", never)), true
		}
		ok = ok && found
	}
	if !ok {
		return "", claimed, false
	}
	return strings.Join(append(r.linesFor(of), none...), "\n"), false, true
}

// wholeAnswer answers what the card itself says: "" if it does not.
func (r renderer) wholeAnswer(about topic) string {
	switch {
	case about == aboutUndo && (r.p.ToolName != "" || r.p.Plan != nil):
		return Format(r.ToolSays, "what", r.reversibility())
	case slices.Contains([]topic{aboutWhere, aboutHosts, aboutPeople}, about) && r.p.Target != "" && !r.knows(about):
		return Format(r.ToolSays, "what", r.target())
	case about == aboutRun && r.p.ToolName == "" && r.p.Plan == nil:
		return r.Claimed
	case about == aboutRun:
		var lines []string
		all, _ := r.runs()
		for _, l := range all {
			lines = append(lines, l.Text)
		}
		return strings.Join(lines, "\n")
	}
	return ""
}

// knows reports whether there are facts about a topic: these say more than the target.
func (r renderer) knows(about topic) bool {
	return slices.ContainsFunc(facts.ByDomain(r.p.Facts), func(d facts.Domain) bool { return slices.Contains(topicDomains[about], d.Domain) })
}

// complete says whether all facts of a domain are known: either a verified proof
// says so, or the request runs no program and the gate could read every argument
// that the operator assigned to the domain.
func (r renderer) complete(d *facts.Domain) bool {
	silent := slices.ContainsFunc(d.Gaps, func(g approval.ProofCoverage) bool { return g.Status == facts.SilentGap })
	if d.Known() && !silent {
		return true
	}
	if facts.RunsProgram(r.p.Facts) || len(d.Host) == 0 || len(d.Unknown)+len(d.Gaps) > 0 {
		return false
	}
	return !slices.ContainsFunc(d.Host, func(h approval.HostFact) bool {
		return h.Omitted > 0 || h.From != facts.FromTemplate && h.From != facts.FromArgument
	})
}

// linesFor returns the lines of these domains alone.
func (r renderer) linesFor(domains []facts.Domain) []string {
	var lines, host []string
	for _, d := range domains {
		for _, h := range d.Host {
			host = append(host, r.hostFact(h, maxAnswered))
		}
	}
	if len(host) > 0 {
		lines = append(lines, Format(r.Evidence.Host, "facts", strings.Join(host, "; ")))
	}
	if line := r.verified(domains, false); line != "" {
		lines = append(lines, line)
	}
	if open := r.openPoints(domains); len(open) > 0 {
		lines = append(lines, Format(r.Evidence.Unknown, "what", r.list(open, maxItems, "; ")))
	}
	return lines
}
