package botapi

import (
	"slices"
	"unicode/utf8"
)

const (
	maxButtons     = 100
	maxButtonData  = 64 // bytes
	maxPlaceholder = 64 // characters
)

// wireMarkup is the union of the supported kinds of markup.
type wireMarkup struct {
	Inline      *[][]wireButton `json:"inline_keyboard"`
	ForceReply  bool            `json:"force_reply"`
	Remove      bool            `json:"remove_keyboard"`
	Placeholder string          `json:"input_field_placeholder"`
	Selective   bool            `json:"selective"`
}

// wireButton is a button as sent. go-telegram/bot adds an empty copy_text to each button; Telegram ignores it
// if there is callback data.
type wireButton struct {
	Button
	Text     *string `json:"text"`
	CopyText *struct {
		Text string `json:"text"`
	} `json:"copy_text"`
}

// markup reads the parameter reply_markup: buttons, a forced reply, or nothing.
func (c *call) markup() (k *Keyboard, forceReply bool) {
	var wire wireMarkup
	if !c.object("reply_markup", "reply keyboard markup", &wire) {
		return nil, false
	}
	kinds := 0
	for _, is := range []bool{wire.Inline != nil, wire.ForceReply, wire.Remove} {
		if is {
			kinds++
		}
	}
	switch {
	case kinds != 1:
		panic(strict("reply_markup is none of inline_keyboard, force_reply and remove_keyboard, or more than one"))
	case utf8.RuneCountInString(wire.Placeholder) > maxPlaceholder:
		panic(badRequest("input field placeholder is too long"))
	case wire.Placeholder != "" && !wire.ForceReply:
		panic(strict("input_field_placeholder goes with force_reply"))
	case wire.Inline != nil:
		k = keyboardOf(*wire.Inline)
	}
	return k, wire.ForceReply
}

// inline reads the markup of an edit, where Telegram accepts only buttons.
func (c *call) inline() *Keyboard {
	k, forceReply := c.markup()
	if forceReply {
		panic(badRequest("inline keyboard expected"))
	}
	return k
}

// keyboardOf reads buttons; it returns nil if there are none.
func keyboardOf(rows [][]wireButton) *Keyboard {
	k, n := &Keyboard{}, 0
	for _, row := range rows {
		if len(row) == 0 {
			panic(strict("Telegram drops a row without buttons"))
		}
		var buttons []Button
		for _, wire := range row {
			buttons = append(buttons, buttonOf(wire))
		}
		k.Rows = append(k.Rows, buttons)
		n += len(row)
	}
	if n > maxButtons {
		panic(badRequest("reply markup is too long"))
	}
	if n == 0 {
		return nil
	}
	return k
}

func buttonOf(wire wireButton) Button {
	const unparsed = "can't parse inline keyboard button: "
	switch {
	case wire.Text == nil:
		panic(badRequest(unparsed + `Can't find field "text"`))
	case normalized(*wire.Text) == "":
		panic(strict("Telegram shows no button without a text"))
	case normalized(*wire.Text) != *wire.Text:
		panic(strict("Telegram would show the button %q instead of %q", normalized(*wire.Text), *wire.Text))
	case wire.CopyText != nil && wire.CopyText.Text != "":
		panic(strict("copy_text is not supported"))
	case !slices.Contains([]string{"", "danger", "success", "primary"}, wire.Style):
		panic(strict("unknown button style %q", wire.Style))
	case wire.URL != "" && wire.CallbackData != "":
		panic(strict("a button with both a url and callback_data: Telegram ignores the latter"))
	case wire.URL == "" && wire.CallbackData == "" && wire.CopyText != nil:
		panic(badRequest("BUTTON_COPY_TEXT_INVALID"))
	case wire.URL == "" && wire.CallbackData == "":
		panic(badRequest(unparsed + "Text buttons are unallowed in the inline keyboard"))
	case len(wire.CallbackData) > maxButtonData || !utf8.ValidString(wire.CallbackData):
		panic(badRequest("BUTTON_DATA_INVALID"))
	case wire.URL != "":
		checkURL(wire.URL, "inline keyboard button URL")
	}
	wire.Button.Text = *wire.Text
	return wire.Button
}
