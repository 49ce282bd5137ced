package botapi

import "unicode/utf8"

const (
	maxButtons     = 100
	maxButtonData  = 64 // bytes
	maxPlaceholder = 64 // characters
)

// markup is a message's reply_markup: buttons, a forced reply, or nothing.
type markup struct {
	keyboard   *Keyboard
	forceReply bool
}

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
	Text     *string `json:"text"`
	Data     string  `json:"callback_data"`
	URL      string  `json:"url"`
	Style    string  `json:"style"`
	CopyText *struct {
		Text string `json:"text"`
	} `json:"copy_text"`
}

// markup reads the parameter reply_markup.
func (c *call) markup() (m markup, refused *refusal) {
	var wire wireMarkup
	there, refused := c.object("reply_markup", "reply keyboard markup", &wire)
	if !there || refused != nil {
		return m, refused
	}
	kinds := 0
	for _, is := range []bool{wire.Inline != nil, wire.ForceReply, wire.Remove} {
		if is {
			kinds++
		}
	}
	switch {
	case kinds != 1:
		return m, strict("reply_markup is none of inline_keyboard, force_reply and remove_keyboard, or more than one")
	case utf8.RuneCountInString(wire.Placeholder) > maxPlaceholder:
		return m, badRequest("input field placeholder is too long")
	case wire.Placeholder != "" && !wire.ForceReply:
		return m, strict("input_field_placeholder goes with force_reply")
	}
	m.forceReply = wire.ForceReply
	if wire.Inline != nil {
		m.keyboard, refused = keyboardOf(*wire.Inline)
	}
	return m, refused
}

// inline reads the markup of an edit, where Telegram accepts only buttons.
func (c *call) inline() (*Keyboard, *refusal) {
	m, refused := c.markup()
	if refused == nil && m.forceReply {
		refused = badRequest("inline keyboard expected")
	}
	return m.keyboard, refused
}

// keyboardOf reads buttons; it returns nil if there are none.
func keyboardOf(rows [][]wireButton) (*Keyboard, *refusal) {
	k, n := &Keyboard{}, 0
	for _, row := range rows {
		if len(row) == 0 {
			return nil, strict("Telegram drops a row without buttons")
		}
		var buttons []Button
		for _, wire := range row {
			b, refused := buttonOf(wire)
			if refused != nil {
				return nil, refused
			}
			buttons = append(buttons, b)
			n++
		}
		k.Rows = append(k.Rows, buttons)
	}
	if n > maxButtons {
		return nil, badRequest("reply markup is too long")
	}
	if n == 0 {
		return nil, nil
	}
	return k, nil
}

func buttonOf(wire wireButton) (Button, *refusal) {
	const unparsed = "can't parse inline keyboard button: "
	switch {
	case wire.Text == nil:
		return Button{}, badRequest(unparsed + `Can't find field "text"`)
	case normalized(*wire.Text) == "":
		return Button{}, strict("Telegram shows no button without a text")
	case normalized(*wire.Text) != *wire.Text:
		return Button{}, strict("Telegram would show the button %q instead of %q", normalized(*wire.Text), *wire.Text)
	case wire.CopyText != nil && wire.CopyText.Text != "":
		return Button{}, strict("copy_text is not supported")
	case wire.Style != "" && wire.Style != "danger" && wire.Style != "success" && wire.Style != "primary":
		return Button{}, strict("unknown button style %q", wire.Style)
	case wire.URL != "" && wire.Data != "":
		return Button{}, strict("a button with both a url and callback_data: Telegram ignores the latter")
	case wire.URL == "" && wire.Data == "" && wire.CopyText != nil:
		return Button{}, badRequest("BUTTON_COPY_TEXT_INVALID")
	case wire.URL == "" && wire.Data == "":
		return Button{}, badRequest(unparsed + "Text buttons are unallowed in the inline keyboard")
	case len(wire.Data) > maxButtonData || !utf8.ValidString(wire.Data):
		return Button{}, badRequest("BUTTON_DATA_INVALID")
	case wire.URL != "":
		if refused := checkURL(wire.URL, "inline keyboard button URL"); refused != nil {
			return Button{}, refused
		}
	}
	return Button{Text: *wire.Text, CallbackData: wire.Data, URL: wire.URL, Style: wire.Style}, nil
}
