package telegram

// Webhook has Telegram deliver updates instead of our asking for them.
type Webhook struct {
	Listen string // the address to listen on
	URL    string // where Telegram finds us, https
	Secret string // what proves that it is Telegram
}
