package cardtest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
)

// programWith is the program among the kinds, whose mails have this body, as its source has it.
func programWith(body string) *approval.Pending {
	p := program().pending()
	for i := range p.Plan.Steps {
		p.Plan.Steps[i].Data = approval.Raw(strings.Replace(string(p.Plan.Steps[i].Data), "Dear all,", strings.Trim(string(codec.Quote(body)), `"`), 1))
	}
	p.Plan.Source = strings.Replace(p.Plan.Source, "Dear all,", body, 1)
	return p
}

// A token is masked in the arguments and in the source. A secret that no mask may hide blocks the card of a program in chat.
func TestSecretsOfAProgram(t *testing.T) {
	style := Style(t, false)
	p := programWith("the token is " + madeUpToken)
	c := style.Card(p)
	require.Empty(t, c.Blocked)
	text := c.String() + strings.Join(c.Why, "\n")
	require.NotContains(t, text, madeUpToken[:12])
	require.Equal(t, 2, strings.Count(text, "‹github token, 40 characters›"), "one for the 12 mails, one in the source")
	require.Contains(t, Style(t, true).Card(programWith(madeUpKey)).String(), "END RSA PRIVATE KEY")

	blocked := style.Card(programWith(madeUpKey))
	require.Contains(t, blocked.Blocked, "private key")
	require.NotContains(t, blocked.String()+strings.Join(blocked.Why, "\n"), "MIIEowIBAAK")

	p = program().pending()
	p.Plan.Source += "# " + strings.ReplaceAll(madeUpKey, "\n", "\n# ") + "\n"
	require.Contains(t, style.Card(p).Blocked, "private key", "in the source alone")
}

// The card of the worked example has at most 40 lines in each language.
func TestTheCardOfAProgramIsShort(t *testing.T) {
	for _, language := range []string{"en", "it"} {
		style := Style(t, false)
		style.Language = language
		require.LessOrEqual(t, strings.Count(style.Card(program().pending()).String(), "\n")+1, 40)
	}
}

func BenchmarkCardOfAProgram(b *testing.B) {
	style := Style(b, false)
	for n := 0; b.Loop(); n++ {
		p := program().pending()
		for i := range 88 {
			s := p.Plan.Steps[0]
			s.Data = approval.Raw(fmt.Sprintf(`{"body":"%s","subject":"Hello %d","to":"p%d@example.org"}`, strings.Repeat("word ", 400), i+n, i+n))
			p.Plan.Steps = append(p.Plan.Steps, s)
		}
		_ = style.Card(p)
	}
}
