package botapi

import (
	"slices"
	"unicode/utf8"

	"github.com/go-telegram/bot/models"
)

const (
	maxButtons     = 100
	maxButtonData  = 64 // bytes
	maxPlaceholder = 64 // characters
)

// markup reads the parameter reply_markup: buttons, a forced reply, or nothing.
func (c *call) markup() (k *Keyboard, forceReply bool) {
	var wire struct {
		Inline *[][]Button `json:"inline_keyboard"`
		models.ForceReply
	}
	if !c.object("reply_markup", "reply keyboard markup", &wire) {
		return nil, false
	}
	switch {
	case (wire.Inline != nil) == wire.ForceReply.ForceReply:
		panic(strict("reply_markup is neither inline_keyboard nor force_reply, or both"))
	case utf8.RuneCountInString(wire.InputFieldPlaceholder) > maxPlaceholder:
		panic(badRequest("input field placeholder is too long"))
	case wire.InputFieldPlaceholder != "" && wire.Inline != nil:
		panic(strict("input_field_placeholder goes with force_reply"))
	case wire.Inline != nil:
		k = keyboardOf(*wire.Inline)
	}
	return k, wire.ForceReply.ForceReply
}

// inline reads the markup of an edit, where Telegram accepts only buttons.
func (c *call) inline() *Keyboard {
	k, forceReply := c.markup()
	if forceReply {
		panic(badRequest("inline keyboard expected"))
	}
	return k
}

// keyboardOf checks buttons; it returns nil if there are none.
func keyboardOf(rows [][]Button) *Keyboard {
	all := slices.Concat(rows...)
	if len(all) > maxButtons {
		panic(badRequest("reply markup is too long"))
	}
	for _, b := range all {
		checkButton(b)
	}
	switch {
	case len(rows) == 0:
		return nil
	case slices.ContainsFunc(rows, func(row []Button) bool { return len(row) == 0 }):
		panic(strict("Telegram drops a row without buttons"))
	}
	return &Keyboard{InlineKeyboard: rows}
}

func checkButton(b Button) {
	shown := normalized(b.Text)
	switch {
	case shown == "":
		panic(strict("Telegram shows no button without a text"))
	case shown != b.Text:
		panic(strict("Telegram would show the button %q instead of %q", shown, b.Text))
	case b != Button{Text: b.Text, CallbackData: b.CallbackData}:
		panic(strict("a button has more than a text and callback data"))
	case b.CallbackData == "":
		panic(badRequest("can't parse inline keyboard button: Text buttons are unallowed in the inline keyboard"))
	case len(b.CallbackData) > maxButtonData || !utf8.ValidString(b.CallbackData):
		panic(badRequest("BUTTON_DATA_INVALID"))
	}
}
