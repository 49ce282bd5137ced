package chat

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/pelletier/go-toml/v2"
)

//go:embed messages/*.toml
var embedded embed.FS

// catalogs is the folder of messages: one file for each language, with one table
// for each user of it.
type catalogs struct {
	files  fs.FS
	list   sync.Once
	tags   []string
	tables sync.Map // of pointers to messages, by tableKey
}

type tableKey struct {
	language, section string
	of                reflect.Type
}

// shipped is replaced only by tests.
var shipped = &catalogs{files: embedded}

const (
	messagesFolder  = "messages"
	defaultLanguage = "en"
)

// Languages lists the languages that have messages, the default first.
func Languages() []string { return slices.Clone(shipped.languages()) }

// Language picks the language of the messages for a tag like "it" or "it-CH".
func Language(tag string) string {
	primary, _, _ := strings.Cut(strings.ReplaceAll(LowerASCII(tag), "_", "-"), "-")
	if slices.Contains(shipped.languages(), primary) {
		return primary
	}
	return defaultLanguage
}

// Messages returns a section of the messages in the language of tag. T is a struct
// with a field for each key. What a language lacks is in English. The caller must
// not change it: all callers share it.
func Messages[T any](tag, section string) *T {
	c, key := shipped, tableKey{Language(tag), section, reflect.TypeFor[T]()}
	if m, ok := c.tables.Load(key); ok {
		return m.(*T)
	}
	m := new(T)
	for _, language := range slices.Compact([]string{defaultLanguage, key.language}) {
		c.read(language, section, m)
	}
	kept, _ := c.tables.LoadOrStore(key, m)
	return kept.(*T)
}

func (c *catalogs) languages() []string {
	c.list.Do(func() {
		c.tags = []string{defaultLanguage}
		files, err := fs.ReadDir(c.files, messagesFolder)
		if err != nil {
			panic(err) // they are part of the program
		}
		for _, f := range files {
			if tag := strings.TrimSuffix(f.Name(), ".toml"); tag != defaultLanguage {
				c.tags = append(c.tags, tag)
			}
		}
	})
	return c.tags
}

// read sets what the language's file has of the section. The other sections need
// not fit.
func (c *catalogs) read(language, section string, to any) {
	name := path.Join(messagesFolder, language+".toml")
	file := reflect.New(reflect.StructOf([]reflect.StructField{{
		Name: "Section", Type: reflect.TypeOf(to), Tag: reflect.StructTag(fmt.Sprintf("toml:%q", section)),
	}}))
	file.Elem().Field(0).Set(reflect.ValueOf(to))
	text, err := fs.ReadFile(c.files, name)
	if err == nil {
		err = toml.Unmarshal(text, file.Interface())
	}
	if err != nil {
		panic(fmt.Errorf("%s: %w", name, err)) // they are part of the program
	}
}

// Format fills in the placeholders. It does not expand the values, so a brace in
// an agent's text stays a brace.
func Format(sentence string, pairs ...string) string {
	for i := 0; i < len(pairs); i += 2 {
		pairs[i] = "{" + pairs[i] + "}"
	}
	return strings.NewReplacer(pairs...).Replace(sentence)
}

func catalog(tag string) *messages { return Messages[messages](tag, "card") }

// choiceMessages are the replies that a card offers, each with its code, but for 2 and 6.
type choiceMessages struct{ Once, Deny, Note, Change, Edit, Ask string }

// messages are the sentences of cards and of replies to approvers. Comments about
// them are in messages/en.toml.
type messages struct {
	MayI             string
	MayIUntranslated string
	Act              string
	ActUntranslated  string
	Subject          string
	SubjectOther     string
	SubjectTo        string
	Run              string
	Wants            map[string]string // by action type, of a request without a tool
	AgentWords       string
	AgentAsks        string
	OnlyAnswer       string
	PausedSince      string
	ApprovedInPause  string
	Reversible       string
	Partial          string
	Irreversible     string
	Class            string
	Unknown          string
	Session          string
	Permanent        string
	Other            string
	ToChange         string
	Reasons          map[string]string // by code; a part in [[ ]] is left out without its values
	Strangers        map[string]string // what the agent read of strangers, by capability
	Secrets          map[string]string // what it read of secrets
	Evidence         evidenceMessages
	Values           valueMessages
	Program          programMessages
	Questions        questionWords
	Replies          replyWords
	CommandWords     map[string]phrases // by command

	DayTitle, DayEmpty, DayAmount, DayMore, DayMoreWorkspaces, DayGrant, DayMoreGrants string
	DayUnavailable, DayUnreadable                                                      string
	DayCounts                                                                          map[string]string // by status

	ChangedSince       string
	ResubmitsUnknown   string
	ResubmitsElsewhere string
	ResubmitsOthers    string
	OtherTool          string
	NotCompared        string
	SameFields         string
	SameLines          string
	SameEnds           string
	MoreChanges        string

	UnknownTool      string
	AnyPartOf        string
	Claimed          string
	Mixed            string
	Rtl              string
	NoDetails        string
	Unreadable       string
	Says             string
	Subagent         string
	Title            string
	Preview          string
	Metadata         string
	RedactedPart     string
	SecretName       string
	WithheldPart     string
	SecretKinds      map[string]string // by the rule's ID
	CutValue         string
	CutFields        string
	CutPayload       string
	CutChanges       string
	CutProse         string
	Invoked          string
	ByAgent          string
	ByGateway        string
	Dir              string
	Stdin            string
	Body             string
	Calls            string
	ServerRuns       string
	ServerAt         string
	AsJSON           string
	FileContent      string
	Blocked          string
	Choices          choiceMessages
	Grants           grantMessages
	Proposal         proposalMessages
	Until            string
	MenuOptions      string
	MenuFree         string
	CodeImpossible   string
	BothImpossible   string
	WouldHaveAllowed string
	AllowsNone       string
	TypedAction      string
	TypedQuestion    string

	Approved            string
	RunBefore           string
	Denied              string
	Answered            string
	Overridden          string
	SentBack            string
	UndoHere            string
	UndoElsewhere       string
	Undone              string
	NothingToUndo       string
	WaitsBecause        string
	StillWaiting        string
	FactsInsufficient   string
	OnlyUnverified      string
	AskAgent            string
	ToolSays            string
	WriteQuestion       string
	NonePending         string
	PendingUnreadable   string
	NotAuthorized       string
	UnknownID           string
	UnknownRequest      string
	Decided             string
	DecidedBy           string
	TooLate             string
	Changed             string
	NotPossible         string
	Ambiguous           string
	FitsSettled         string
	ShortID             string
	IsQuestion          string
	OtherCard           string
	NotUnderstood       string
	NotUnderstoodReply  string
	NotUnderstoodAnswer string
	NeedsText           string
	TakesNoText         string
	Continues           string
	Unconfirmed         string
	Verdicts            map[string]string
	SettledAs           string
	SettledBy           string
	SettledError        string
}

// evidenceMessages are the words of the lines about evidence.
type evidenceMessages struct {
	Host, NotListed             string
	Verified, Covered, Trusting string
	Unknown, Missing            string
	EverythingElse, Program     string
	OnlyClaimed                 string
	ClaimHead, Contract         string
	More, None                  string
	Names, Statuses             map[string]string
}

// valueMessages are the words of the lines about the values of arguments.
type valueMessages struct {
	OnePerson, People, Outside           string
	LeadsTo, LeadsNowhere                string
	AllInside, AtDomain, AtDomains       string
	OneText, AsSent, NotAddress          string
	NotAddresses, SameAddress, Mixed     string
	Punycode, BadPunycode, Address, Port string
	Unencrypted, User, Odd, ReadAs       string
	NoCurrency, Zero, Negative           string
	Exponent                             string
	Mismatch, Unreadable, NotParsed      string
	Writes, Connects, Network            string
	Deletes, DeletesSome, ServesPeer     string
	Interprets, InterpretsText           string
	Elevates, Evaluates                  string
	Sets, Background, Open               string
	Substitution, Script                 string
	Defines, Unread                      string
	NewFile, FileUnread                  string
	FileChanges, NoFinalBreak, EmptyFile string
}
