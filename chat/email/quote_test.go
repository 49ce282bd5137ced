package email

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

const sender = "Anna Bell <anna@example.net>"

// attributions are the lines that programs write above a quotation, by language. {who}
// is a name with or without an address, or an address.
var attributions = map[string][]string{
	"Afrikaans":  {"Op 5 Januarie 2026 om 14:30 het {who} geskryf:"},
	"Arabic":     {"في الاثنين، 5 يناير 2026 في 2:30 م كتب {who}:", "بتاريخ 5/1/2026، كتب {who}:"},
	"Basque":     {"2026(e)ko urt. 5(a) 14:30, {who} erabiltzaileak idatzi zuen:"},
	"Bulgarian":  {"На пн, 5.01.2026 г. в 14:30 {who} написа:"},
	"Catalan":    {"El dl., 5 de gen. 2026 a les 14:30, {who} va escriure:"},
	"Chinese":    {"在 2026年1月5日，下午2:30，{who} 写道：", "{who} 于2026年1月5日周一 14:30写道：", "{who} 於 2026年1月5日 週一 下午2:30寫道："},
	"Croatian":   {"Dana pon, 5. sij 2026. u 14:30 {who} napisao je:"},
	"Czech":      {"Dne po 5. 1. 2026 14:30 uživatel {who} napsal:", "po 5. 1. 2026 v 14:30 odesílatel {who} napsal:"},
	"Danish":     {"Den 5. jan. 2026 kl. 14.30 skrev {who}:", "Den man. 5. jan. 2026 14.30 skrev {who}:"},
	"Dutch":      {"Op ma 5 jan 2026 om 14:30 schreef {who}:", "Op 5 jan. 2026 om 14:30 heeft {who} het volgende geschreven:"},
	"English":    {"On Mon, Jan 5, 2026 at 2:30 PM {who} wrote:", "On 5 Jan 2026, at 14:30, {who} wrote:", "On 1/5/26 14:30, {who} wrote:", "On Monday, January 5, 2026, {who} wrote:"},
	"Estonian":   {"Kuupäeval E, 5. jaanuar 2026 kell 14:30 kirjutas {who}:"},
	"Finnish":    {"ma 5. tammik. 2026 klo 14.30 {who} kirjoitti:", "{who} kirjoitti 5.1.2026 kello 14.30:"},
	"French":     {"Le lun. 5 janv. 2026 à 14:30, {who} a écrit :", "Le 05/01/2026 à 14:30, {who} a écrit :"},
	"Galician":   {"O luns, 5 xan 2026 ás 14:30, {who} escribiu:"},
	"German":     {"Am Mo., 5. Jan. 2026 um 14:30 Uhr schrieb {who}:", "Am 05.01.26 um 14:30 schrieb {who}:", "Am Montag, 5. Januar 2026, 14:30 hat {who} geschrieben:"},
	"Greek":      {"Στις Δευ 5 Ιαν 2026 στις 2:30 μ.μ., ο/η {who} έγραψε:"},
	"Hebrew":     {"ב-5 בינואר 2026 בשעה 14:30, {who} כתב:", "\u202bבתאריך יום ב׳, 5 בינו׳ 2026 ב-14:30 מאת \u202a{who}\u202c\u200f כתב/ה:\u202c"},
	"Hungarian":  {"{who} ezt írta (időpont: 2026. jan. 5., H, 14:30):", "2026. 01. 05. 14:30 keltezéssel, {who} írta:"},
	"Icelandic":  {"Þann mán., 5. jan. 2026 kl. 14:30 skrifaði {who}:"},
	"Indonesian": {"Pada Sen, 5 Jan 2026 pukul 14.30 {who} menulis:"},
	"Italian":    {"Il giorno lun 5 gen 2026 alle ore 14:30 {who} ha scritto:", "Il 05/01/2026 14:30, {who} ha scritto:", "In data 5 gennaio 2026 14:30:00 {who} ha scritto:"},
	"Japanese":   {"2026年1月5日(月) 14:30、{who} のメール:", "2026/01/05 14:30、{who} のメッセージ:", "{who} さんは書きました (2026/01/05 14:30):"},
	"Korean":     {"2026년 1월 5일 (월) 오후 2:30, {who}님이 작성:", "{who} 작성 (2026. 1. 5. 오후 2:30):"},
	"Latvian":    {"pirmd., 2026. g. 5. janv., plkst. 14:30, lietotājs {who} rakstīja:"},
	"Lithuanian": {"2026-01-05, pr, 14:30 {who} rašė:"},
	"Norwegian":  {"man. 5. jan. 2026 kl. 14:30 skrev {who}:", "Den 05.01.2026 14:30, skrev {who}:"},
	"Persian":    {"در دوشنبه ۵ ژانویه ۲۰۲۶ ساعت ۱۴:۳۰ {who} نوشت:"},
	"Polish":     {"pon., 5 sty 2026 o 14:30 {who} napisał(a):", "W dniu 5.01.2026 o 14:30, {who} pisze:", "Dnia 5 stycznia 2026 14:30 {who} napisał(a):"},
	"Portuguese": {"Em seg., 5 de jan. de 2026 às 14:30, {who} escreveu:", "{who} escreveu no dia segunda, 5/01/2026 à(s) 14:30:", "A 5 de janeiro de 2026, {who} escreveu:"},
	"Romanian":   {"În lun., 5 ian. 2026 la 14:30, {who} a scris:", "Pe 5 ian. 2026, la 14:30, {who} a scris:"},
	"Russian":    {"5 янв. 2026 г., в 14:30, {who} написал(а):", "05.01.2026 14:30, {who} пишет:"},
	"Serbian":    {"Дана пон, 5. јан 2026. у 14:30 {who} је написао:"},
	"Slovak":     {"Dňa po 5. 1. 2026 o 14:30 {who} napísal(a):"},
	"Slovenian":  {"V pon., 5. jan. 2026 ob 14:30 je {who} napisal:"},
	"Spanish":    {"El lun, 5 ene 2026 a las 14:30, {who} escribió:", "El 5 de enero de 2026, {who} escribió:"},
	"Swedish":    {"Den mån 5 jan. 2026 kl 14:30 skrev {who}:", "5 jan. 2026 kl. 14:30 skrev {who}:"},
	"Thai":       {"ในวันที่ จ. 5 ม.ค. 2026 เวลา 14:30 น. {who} เขียนว่า:"},
	"Turkish":    {"{who}, 5 Oca 2026 Pzt, 14:30 tarihinde şunu yazdı:"},
	"Ukrainian":  {"пн, 5 січ. 2026 р. о 14:30 {who} пише:", "5 січ. 2026 р., о 14:30, {who} написав(-ла):"},
	"Vietnamese": {"Vào Th 2, 5 thg 1, 2026 vào lúc 14:30 {who} đã viết:"},
}

// wrapAt breaks a text at blanks, as programs do.
func wrapAt(s string, width int) string {
	var lines []string
	line := ""
	for _, w := range strings.Fields(s) {
		if line != "" && len([]rune(line+" "+w)) > width {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimSpace(line + " " + w)
	}
	return strings.Join(append(lines, line), "\n")
}

// shortCard is the part of a card that could be mistaken for an answer.
func shortCard(t *testing.T) string {
	lines := strings.Split(replyCards(t)[0], "\n")
	return strings.Join(append(lines[:1:1], lines[len(lines)-6:]...), "\n")
}

// TestQuotedOfferDecidesNothing: the lines that say what would be remembered begin with a code.
func TestQuotedOfferDecidesNothing(t *testing.T) {
	p := cardPending()
	for _, target := range []string{"x.com/ricardo", "1", "6", "x\n6\n", strings.Repeat("long ", 40)} {
		for i := range p.Offers {
			p.Offers[i].Terms.Target = target
		}
		for _, language := range chat.Languages() {
			style := chat.Style{Language: language}
			for code, scope := range map[string]approval.Scope{"2": approval.Session, "6": approval.Always} {
				for _, width := range []int{400, 72, 40} {
					quoted := wrapAt(code+" "+style.Offer(&p, scope), width)
					text, clear := answer(quoted+"\n", false)
					require.False(t, clear, "%q decides: %q", quoted, text)
					for _, own := range []string{"1", "3 not this"} {
						text, clear = answer(own+"\n\n"+quoted+"\n", false)
						require.True(t, !clear || text == own, "%q above %q is %q", own, quoted, text)
						text, clear = answer(quoted+"\n\n"+own+"\n", false)
						require.True(t, !clear || text == own, "%q below %q is %q", own, quoted, text)
					}
				}
			}
		}
	}
}

// TestAttributions checks that a quotation decides nothing and hides no answer, in every
// language, with any wrapping, marked or not.
func TestAttributions(t *testing.T) {
	require.GreaterOrEqual(t, len(attributions), 20)
	card := shortCard(t)
	for language, forms := range attributions {
		t.Run(language, func(t *testing.T) {
			for _, form := range forms {
				for _, who := range []string{sender, "Anna Bell", "anna@example.net"} {
					for _, width := range []int{400, 72, 40, 26} {
						checkAttribution(t, wrapAt(strings.ReplaceAll(form, "{who}", who), width), card)
					}
				}
			}
		})
	}
}

func checkAttribution(t *testing.T, attribution, card string) {
	for _, mark := range []string{"> ", ""} {
		quotation := attribution + "\n\n" + quoteAs(mark, card)
		text, clear := answer(quotation, false)
		require.False(t, clear, "%s decides: %q", attribution, text)
		require.Empty(t, text, attribution)
		text, clear = answer("3 not this\n\n"+quotation, false)
		require.True(t, clear, attribution)
		require.Equal(t, "3 not this", text, attribution)
		text, clear = answer(quotation+"\n4 under it\n", false)
		require.Equal(t, mark != "", clear, "%s: %q", attribution, text)
		if clear {
			require.Equal(t, "4 under it", text, attribution)
		}
	}
}

// TestAttributionRightBelow: some programs put no blank line between the answer and the
// quotation. The answer may then be unclear, but not wrong.
func TestAttributionRightBelow(t *testing.T) {
	card := replyCards(t)[0]
	right, all := 0, 0
	for language, forms := range attributions {
		for _, form := range forms {
			for _, width := range []int{400, 60, 30} {
				for _, code := range []string{"1", "4 keep it"} {
					all++
					text, clear := answer(code+"\n"+wrapAt(strings.ReplaceAll(form, "{who}", sender), width)+"\n"+quoteAs("> ", card), false)
					if clear && decides(text) {
						right++
						require.Equal(t, code, text, language)
					}
				}
			}
		}
	}
	t.Logf("%d of %d right, the rest unclear", right, all)
	require.Greater(t, right*10, all*7)
}

// headers are the field labels that programs write above an unmarked quotation, by
// language: sender, time, recipient, subject.
var headers = map[string][4]string{
	"English": {"From", "Sent", "To", "Subject"}, "German": {"Von", "Gesendet", "An", "Betreff"}, "French": {"De ", "Envoyé ", "À ", "Objet "},
	"Italian": {"Da", "Inviato", "A", "Oggetto"}, "Spanish": {"De", "Enviado el", "Para", "Asunto"}, "Portuguese": {"De", "Enviada em", "Para", "Assunto"},
	"Dutch": {"Van", "Verzonden", "Aan", "Onderwerp"}, "Polish": {"Od", "Wysłano", "Do", "Temat"}, "Swedish": {"Från", "Skickat", "Till", "Ämne"},
	"Danish": {"Fra", "Sendt", "Til", "Emne"}, "Finnish": {"Lähettäjä", "Lähetetty", "Vastaanottaja", "Aihe"}, "Czech": {"Od", "Odesláno", "Komu", "Předmět"},
	"Hungarian": {"Feladó", "Elküldve", "Címzett", "Tárgy"}, "Russian": {"От", "Отправлено", "Кому", "Тема"}, "Ukrainian": {"Від", "Надіслано", "Кому", "Тема"},
	"Turkish": {"Kimden", "Gönderildi", "Kime", "Konu"}, "Romanian": {"De la", "Trimis", "Către", "Subiect"}, "Greek": {"Από", "Στάλθηκε", "Προς", "Θέμα"},
	"Japanese": {"差出人", "送信日時", "宛先", "件名"}, "Chinese": {"发件人", "发送时间", "收件人", "主题"}, "Korean": {"보낸 사람", "보낸 날짜", "받는 사람", "제목"},
	"Arabic": {"من", "تاريخ الإرسال", "إلى", "الموضوع"}, "Hebrew": {"מאת", "נשלח", "אל", "נושא"}, "Bulgarian": {"От", "Изпратено", "До", "Относно"},
}

func TestHeaders(t *testing.T) {
	require.GreaterOrEqual(t, len(headers), 20)
	card := shortCard(t)
	for language, h := range headers {
		for _, form := range []string{"{0}: {who}\n{1}: {at}\n{2}: Bob\n{3}: Post to X", "*{0}:* {who}\n*{1}:* {at}\n*{2}:* Bob\n*{3}:* Post to X", "{0}: {who} {1}: {at} {2}: Bob {3}: Post to X", "  {0} : {who}\n\n  {1} : {at}\n\n  {2} : Bob\n\n  {3} : Post to X"} {
			block := strings.NewReplacer("{0}", h[0], "{1}", h[1], "{2}", h[2], "{3}", h[3], "{who}", sender, "{at}", "5.1.2026 14:30").Replace(form)
			for _, rule := range []string{"", "________________________________\n", " ------------------------------\n\n", "-----Original Message-----\n"} {
				quotation := rule + block + "\n\n" + card + "\n"
				text, clear := answer(quotation, false)
				require.False(t, clear, "%s decides: %q", language, text)
				for _, code := range []string{"1", "4 keep it", "3\nfor two reasons"} {
					text, clear = answer(code+"\n\n"+quotation, false)
					require.True(t, clear, "%s\n%s", language, quotation)
					require.Equal(t, code, text, language)
					text, clear = answer(code+"\n"+quotation, false)
					require.True(t, !clear || !decides(text) || text == code, "%s: %q\n%s", language, text, quotation)
				}
			}
		}
	}
}

// mobileSignatures are signatures that a phone or a mail program adds, by language.
var mobileSignatures = []string{
	"Sent from my iPhone", "Sent from Outlook for Android", "Sent via BlackBerry", "Get Outlook for iOS<https://aka.ms/o0ukef>", "Sent with Proton Mail secure email.",
	"Von meinem iPhone gesendet", "Gesendet von Outlook für Android", "Diese Nachricht wurde von meinem Android-Gerät mit GMX Mail gesendet.",
	"Envoyé de mon iPhone", "Envoyé à partir de Outlook pour iOS", "Télécharger Outlook pour Android", "Inviato da iPhone", "Inviato dal mio Galaxy", "Scarica Outlook per iOS",
	"Enviado desde mi iPhone", "Obtener Outlook para Android", "Enviado do meu iPhone", "Obter o Outlook para iOS", "Verzonden vanaf mijn iPhone", "Verstuurd vanaf mijn iPad",
	"Wysłane z iPhone'a", "Skickat från min iPhone", "Sendt fra min iPhone", "Lähetetty iPhonesta", "Отправлено с iPhone", "Надіслано з iPhone", "Odesláno z iPhonu", "Odoslané z iPhonu",
	"iPhone-ról küldve", "Trimis de pe iPhone-ul meu", "iPhone'umdan gönderildi", "Στάλθηκε από το iPhone μου", "iPhoneから送信", "发自我的iPhone", "從我的 iPhone 傳送", "나의 iPhone에서 보냄",
	"أُرسلت من الـ iPhone", "נשלח מה-iPhone שלי", "ส่งจาก iPhone ของฉัน", "Đã gửi từ iPhone của tôi", "Dikirim dari iPhone saya", "Poslano s mojeg iPhonea", "Enviat des de l'iPhone",
}

func TestMobileSignatures(t *testing.T) {
	for _, s := range mobileSignatures {
		for _, gap := range []string{"\n", "\n\n"} {
			text, clear := answer("4 keep it"+gap+s+"\n\nOn 5 Jan 2026, at 14:30, "+sender+" wrote:\n\n> 1\n", false)
			require.True(t, clear, s)
			require.Equal(t, "4 keep it", text, s)
		}
		text, clear := answer(s+"\n\nOn 5 Jan 2026, at 14:30, "+sender+" wrote:\n\n> 1\n", false)
		require.False(t, clear, "%q is an automatic signature: %q", s, text)
	}
	text, clear := answer("3 what is sent from my desk is sent by me", false)
	require.True(t, clear)
	require.Equal(t, "3 what is sent from my desk is sent by me", text)
}

func TestForwardMarks(t *testing.T) {
	for _, mark := range []string{
		"---------- Forwarded message ---------", "Begin forwarded message:", "-----Ursprüngliche Nachricht-----", "Anfang der weitergeleiteten Nachricht:",
		"-------- Message d'origine --------", "Début du message réexpédié :", "Inizio messaggio inoltrato:", "-----Messaggio originale-----", "Inicio del mensaje reenviado:",
		"Início da mensagem encaminhada:", "Begin doorgestuurd bericht:", "-----Oorspronkelijk bericht-----", "Vidarebefordrat brev:", "-------- Oprindelig besked --------",
		"Начало переадресованного сообщения:", "-------- Исходное сообщение --------", "転送されたメッセージ:", "------------------ 原始邮件 ------------------", "-----원본 메시지-----", "---------- तारांकित संदेश ----------", "İletilen mesaj:",
	} {
		for _, code := range []string{"1", "5 not so"} {
			text, clear := answer(code+"\n\n"+mark+"\n\n3 old words\n", false)
			require.True(t, clear, mark)
			require.Equal(t, code, text, mark)
		}
		text, clear := answer(mark+"\n\n3 old words\n", false)
		require.False(t, clear, "%s: %q", mark, text)
	}
}

// TestWordLists checks that every word in the lists has the form in which lines are
// compared.
func TestWordLists(t *testing.T) {
	for name, list := range wordLists() {
		for _, l := range list {
			if strings.HasSuffix(name, "labels") {
				found, known := fieldLabel(l + ": x")
				require.True(t, known, l)
				require.Equal(t, l, found)
			}
			if !strings.HasPrefix(name, "automatic") && !strings.HasSuffix(name, "names") { // those are expressions
				require.Equal(t, strings.TrimSpace(l), normalize(l))
			}
			require.NotEmpty(t, l)
		}
	}
	for _, name := range []string{"attribution verbs", "attribution starts", "forward marks", "mobile starts", "mobile ends", "from labels", "other labels"} {
		require.Greater(t, len(words(name)), 10)
	}
}
