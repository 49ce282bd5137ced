package email

import (
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// The words that mail programs write around a quotation, by language, in lower case.
// A missing language is still recognized if the quotation is marked, or by an address
// or a date.

// attributionVerbs occur in "On …, Ann wrote:".
var attributionVerbs = []string{
	"wrote", "writes", // English
	"schrieb", "geschrieben", "schreibt", // German
	"a écrit", "écrivait", "a ecrit", // French
	"ha scritto", "scrive", "scriveva", // Italian
	"escribió", "escribio", "escribe", // Spanish
	"escreveu", "escreve", // Portuguese
	"schreef", "geschreven", "schrijft", // Dutch
	"napisał", "pisze", "napsal", "napísal", // Polish, Czech, Slovak
	"skrev", "skrifaði", // Swedish, Danish, Norwegian; Icelandic
	"kirjoitti", "kirjutas", // Finnish; Estonian
	"написал", "пишет", "писал", // Russian
	"написав", "пише", "писав", // Ukrainian
	"написа", "писа", // Bulgarian, Serbian, Macedonian
	"napisao", "napisal", "pisal", "piše", // Croatian, Serbian, Slovenian
	"írta",            // Hungarian
	"yazdı", "yazmış", // Turkish
	"a scris",          // Romanian
	"έγραψε", "γράφει", // Greek
	"のメール", "書きました", "書いた", "さんは書", "のメッセージ", // Japanese
	"写道", "寫道", "写到", "的邮件", "來信", // Chinese
	"작성", "썼습니다", "보낸 메시지", "님의 말", // Korean
	"كتب", "تمت كتابة", // Arabic
	"כתב", "נכתב", // Hebrew
	"نوشت",            // Persian
	"đã viết", "viết", // Vietnamese
	"menulis",                    // Indonesian, Malay
	"เขียน",                      // Thai
	"लिखा",                       // Hindi
	"rašė", "parašė", "rakstīja", // Lithuanian, Latvian
	"va escriure", "ha escrit", // Catalan
	"escribiu", "idatzi", // Galician, Basque
	"geskryf", "scríobh", // Afrikaans, Irish
	"shkroi", // Albanian
}

// attributionStarts are the first words of an attribution, each with its blank.
var attributionStarts = byFirst(
	"on ", "in message ", "in article ", "in a message dated ", "quoting ", "at ",
	"am ", "zitat von ", "um ", "a ", "à ", "le ", "il ", "in data ", "nel ", "el ", "en ", "em ", "citando ",
	"op ", "w dniu ", "dnia ", "dn. ", "den ", "på ", "d. ", "vid ", "dne ", "dňa ", "dana ", "dana, ", "v ",
	"в ", "на ", "дана ", "în ", "pe ", "la ", "στις ", "την ", "τη ", "στο ", "vào ", "lúc ", "ngày ",
	"pada ", "tanggal ", "ב-", "בתאריך ", "ביום ", "في ", "بتاريخ ", "يوم ", "در ", "ในวันที่ ", "เมื่อ ",
	"在 ", "在", "于 ", "於 ", "þann ", "mr ", "m. ", "më ", "kuupäeval ", "ar ",
	"mon,", "tue,", "wed,", "thu,", "fri,", "sat,", "sun,",
	"пн,", "вт,", "ср,", "чт,", "пт,", "сб,", "вс,", "нд,",
)

var (
	angled      = pattern(`<[^\s@<>]+@[^\s@<>]+>`)
	clock       = pattern(`(?:^|\D)\d{1,2}[:.h]\d{2}(?:\D|$)`)
	addressEnd  = pattern(`\S@[^\s@]+\s*[:：]$`)
	year        = pattern(`(?:^|\D)(?:(?:19|20)\d\d|\d{1,2}[./-]\d{1,2}[./-]\d{2})(?:\D|$)|[年년]`)
	clockOrYear = pattern(`(?:^|\D)(?:\d{1,2}[:.h]\d{2}|(?:19|20)\d\d|\d{1,2}[./-]\d{1,2}[./-]\d{2})(?:\D|$)|[年月日년월일]`)
)

func beginsAttribution(norm string) bool {
	return attributionStarts().matchesStart(strings.TrimLeft(norm, "-–— "))
}

func endsAttribution(norm string) bool {
	norm = strings.TrimRight(norm, " -–—")
	if strings.Count(norm, "(") > strings.Count(norm, ")") {
		return false // inside parentheses
	}
	return strings.HasSuffix(norm, ":") || strings.HasSuffix(norm, "：")
}

// namesAuthor says whether a text names an author: by a verb, an address, or both date and
// time, which occur in no other sentence that ends with a colon.
func namesAuthor(norm string) bool {
	return hasVerb(norm) || addressEnd().MatchString(norm) || angled().MatchString(norm) || year().MatchString(norm) && clock().MatchString(norm)
}

func hasVerb(norm string) bool { return containsOf(norm, attributionVerbs) }

// hasDateOrAddress says whether a text may contain a date or an address.
func hasDateOrAddress(norm string) bool {
	return strings.ContainsFunc(norm, func(r rune) bool { return r == '@' || unicode.IsDigit(r) })
}

func isNumeral(s string) bool {
	for _, r := range s {
		return unicode.IsDigit(r)
	}
	return false
}

// forwardMarks announce a forwarded message, in programs that write no dashes.
var forwardMarks = byFirst(
	"begin forwarded message", "forwarded message", "original message",
	"anfang der weitergeleiteten", "weitergeleitete nachricht", "ursprüngliche nachricht",
	"début du message", "message transféré", "message d'origine", "message original",
	"inizio messaggio inoltrato", "messaggio inoltrato", "messaggio originale",
	"inicio del mensaje reenviado", "mensaje reenviado", "mensaje original",
	"início da mensagem", "mensagem encaminhada", "mensagem reencaminhada", "mensagem original",
	"begin doorgestuurd bericht", "doorgestuurd bericht", "oorspronkelijk bericht",
	"początek przekazywanej wiadomości", "wiadomość przekazana", "wiadomość oryginalna",
	"vidarebefordrat brev", "vidarebefordrat meddelande", "ursprungligt meddelande",
	"start på videresendt", "videresendt", "oprindelig besked", "opprinnelig melding",
	"välitetty viesti", "edelleenlähetetty viesti", "alkuperäinen viesti",
	"начало переадресованного", "пересылаемое сообщение", "исходное сообщение",
	"початок листа, що пересилається", "переслане повідомлення", "оригінал повідомлення",
	"začátek přeposlané zprávy", "přeposlaná zpráva", "původní zpráva", "preposlaná správa", "pôvodná správa",
	"továbbított üzenet", "eredeti üzenet", "iletilen mesaj", "özgün ileti", "mesaj redirecționat", "mesaj original",
	"προωθημένο μήνυμα", "αρχικό μήνυμα", "препратено съобщение",
	"転送されたメッセージ", "転送メッセージ", "元のメッセージ", "转发的邮件", "下面是被转发的邮件", "原始邮件", "轉寄的郵件", "原始郵件",
	"전달된 메시지", "원본 메시지", "الرسالة المعاد توجيهها", "الرسالة الأصلية", "הודעה שהועברה", "הודעה מקורית",
	"thư được chuyển tiếp", "thư gốc", "pesan terusan", "pesan asli", "ข้อความที่ส่งต่อ",
)

// forwardMark says whether a complete line is such a mark, with or without a colon.
func forwardMark(norm string) bool {
	if len(norm) > maxCompared/2 || !forwardMarks().matchesStart(norm) {
		return false
	}
	return endsAttribution(norm) || forwardMarks().contains(norm)
}

// mobileStarts begin the line that a phone or a mail program adds.
var mobileStarts = byFirst(
	"sent from", "sent via", "sent with", "sent by", "sent using", "sent on the go", "get outlook for", "get bluemail", "sent a magnificent",
	"von meinem", "gesendet von", "gesendet mit", "gesendet via", "gesendet über", "diese nachricht wurde von", "holen sie sich outlook", "outlook für",
	"envoyé de", "envoyé depuis", "envoyé à partir", "envoyé avec", "envoyé via", "envoyé par", "télécharger outlook", "téléchargez outlook", "obtenez outlook", "obtenir outlook",
	"inviato da", "inviato dal", "inviata da", "inviato con", "scarica outlook", "ottieni outlook",
	"enviado desde", "enviado con", "obtener outlook", "enviado de", "enviado do", "enviado a partir", "enviado pelo", "enviado via", "enviada do", "obter o outlook", "obtenha o outlook", "baixe o outlook",
	"verzonden vanaf", "verzonden met", "verzonden via", "verstuurd vanaf", "verstuurd met", "verstuurd via", "outlook voor",
	"wysłane z", "wysłano z", "wysłane przez", "pobierz aplikację outlook", "uzyskaj aplikację outlook",
	"skickat från", "skickades från", "skickat med", "hämta outlook", "sendt fra", "sendt med", "hent outlook", "få outlook", "skaff deg outlook",
	"lähetetty", "hanki outlook", "lataa outlook",
	"отправлено с", "отправлено из", "отправлено от", "получить outlook", "скачать outlook", "послано с",
	"надіслано з", "надіслано за", "відправлено з", "изпратено от", "послато са", "poslato sa", "poslano s", "poslano z", "poslano iz",
	"odesláno z", "odoslané z", "získať outlook", "získejte outlook", "stáhnout outlook", "elküldve", "küldve", "outlook beszerzése",
	"trimis de pe", "trimis din", "trimis cu", "obțineți outlook", "στάλθηκε από", "εστάλη από", "αποστολή από", "λήψη του outlook",
	"发自", "發自", "从我的", "從我的", "来自", "寄自", "傳送自", "通过", "获取 outlook", "取得 outlook",
	"나의", "내", "outlook 다운로드", "outlook for", "outlook per", "outlook para", "outlook pour",
	"أُرسلت من", "أرسلت من", "تم الإرسال من", "مرسل من", "احصل على outlook", "נשלח מ", "ارسال شده از", "ارسالشده از",
	"gửi từ", "đã gửi từ", "được gửi từ", "tải outlook", "dikirim dari", "dihantar dari", "dapatkan outlook", "ส่งจาก", "ถูกส่งจาก",
	"išsiųsta iš", "nosūtīts no", "saadetud", "enviat des de", "enviat amb", "bidalia", "sent ó mo", "gestuur vanaf", "sent fra", "dërguar nga",
)

// mobileEnds occur in such a line in languages with the verb at the end.
var mobileEnds = []string{"から送信", "から送った", "より送信", "gönderildi", "ról küldve", "ről küldve", "에서 보냄", "에서 전송", "에서 보낸 편지", "से भेजा", "발송됨", "saadetud"}

// mobileSignature says whether a line is such a signature and nothing else.
func mobileSignature(norm string) bool {
	if len(norm) > maxCompared/2 || strings.ContainsAny(norm, "?!") {
		return false
	}
	if containsOf(norm, mobileEnds) {
		return true
	}
	norm = strings.TrimLeft(norm, "-–—_ ")
	for _, s := range []string{"나의", "내", "来自", "通过", "从我的", "從我的"} {
		if strings.HasPrefix(norm, s) { // too short to decide alone
			return containsOf(norm, []string{"보냄", "전송", "发送", "傳送", "寄出", "iphone", "ipad", "手机", "outlook"})
		}
	}
	return mobileStarts().matchesStart(norm)
}

// The labels of header fields, by meaning.
var (
	fromLabels = labels(
		"from", "von", "de", "da", "van", "od", "från", "fra", "lähettäjä", "от", "от кого", "від", "feladó", "kimden", "gönderen", "de la",
		"από", "差出人", "送信者", "送信元", "发件人", "寄件者", "寄件人", "보낸 사람", "보낸사람", "발신", "من", "מאת", "از", "จาก", "từ", "dari",
		"pošiljatelj", "posiljatelj", "šalje", "шаље", "nuo", "saatja", "frá", "nga", "sender", "absender", "expéditeur", "mittente", "remitente", "remetente", "afzender", "avsändare", "nadawca", "prejemnik",
	)
	sentLabels = labels(
		"sent", "date", "gesendet", "datum", "gesendet am", "envoyé", "envoyé le", "date d'envoi", "inviato", "data", "data invio", "inviato il",
		"enviado", "enviado el", "fecha", "enviada em", "enviado em", "enviada", "verzonden", "verzonden op", "wysłano", "wysłane", "data wysłania",
		"skickat", "skickades", "sendt", "dato", "lähetetty", "päivämäärä", "päiväys", "отправлено", "дата", "дата отправки", "надіслано", "відправлено", "dátum", "elküldve", "küldve", "küldés dátuma",
		"gönderildi", "gönderilme tarihi", "gönderme tarihi", "tarih", "trimis", "στάλθηκε", "ημερομηνία", "изпратено", "送信日時", "日付", "日時", "送信日",
		"发送时间", "发送日期", "日期", "時間", "时间", "寄件日期", "傳送時間", "傳送日期", "보낸 날짜", "날짜", "전송", "تاريخ الإرسال", "التاريخ", "أُرسلت", "נשלח", "תאריך", "تاریخ",
		"วันที่", "ส่ง", "đã gửi", "ngày", "dikirim", "tanggal", "poslano", "odesláno", "odoslané", "išsiųsta", "nosūtīts", "saadetud", "sent at", "enviat",
	)
	toLabels = labels(
		"to", "an", "à", "a", "al", "para", "aan", "do", "till", "til", "vastaanottaja", "кому", "címzett", "kime", "alıcı", "către", "προς", "до", "宛先", "收件人", "收件者",
		"받는 사람", "받는사람", "수신", "إلى", "אל", "به", "ถึง", "tới", "đến", "kepada", "prima", "za", "komu", "kam", "kellele", "për", "per", "kopi til",
		"cc", "kopie", "copie", "copia", "dw", "kopia", "kopio", "копия", "копія", "másolat", "bilgi", "κοιν", "コピー", "抄送", "副本", "참조", "نسخة", "עותק", "reply-to", "antwort an", "répondre à", "rispondi a",
	)
	subjectLabels = labels(
		"subject", "betreff", "objet", "oggetto", "asunto", "assunto", "onderwerp", "temat", "ämne", "emne", "aihe", "тема", "předmět", "predmet", "tárgy", "konu", "subiect",
		"θέμα", "относно", "件名", "題名", "主题", "主旨", "主題", "제목", "الموضوع", "נושא", "موضوع", "เรื่อง", "หัวเรื่อง", "chủ đề", "tiêu đề", "perihal", "subjek", "tema", "teema", "zadeva", "naslov", "efni", "assumpte", "gaia", "subjekt",
	)
)

// labels are a set that is built on first use.
func labels(words ...string) func() map[string]bool {
	return sync.OnceValue(func() map[string]bool { return set(words...) })
}

func set(words ...string) map[string]bool {
	m := make(map[string]bool, len(words))
	for _, w := range words {
		m[w] = true
	}
	return m
}

func isLabel(word string) bool {
	return fromLabels()[word] || sentLabels()[word] || toLabels()[word] || subjectLabels()[word]
}

// fieldLabel is the text before the colon of a line that looks like a header field,
// and whether the label is known.
func fieldLabel(norm string) (label string, known bool) {
	i := strings.IndexAny(norm, ":：")
	if i <= 0 || i > 60 {
		return "", false
	}
	label = strings.Trim(norm[:i], " -–—|")
	value := strings.TrimLeft(norm[i:], ":： ")
	if strings.HasPrefix(value, "//") || strings.ContainsFunc(label, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsMark(r) && !strings.ContainsRune(" -'’.", r)
	}) {
		return "", false
	}
	if isLabel(label) {
		return label, true
	}
	if value == "" {
		return "", false
	}
	return label, false
}

// isInlineHeader says whether a line contains a complete header.
func isInlineHeader(norm string) bool {
	pieces := strings.FieldsFunc(norm, func(r rune) bool { return r == ':' || r == '：' })
	if len(pieces) < 4 {
		return false
	}
	found, from := map[string]bool{}, false
	for _, p := range pieces[:len(pieces)-1] {
		words := strings.Fields(p)
		for n := 1; n <= 2 && n <= len(words); n++ {
			if w := strings.Join(words[len(words)-n:], " "); isLabel(w) {
				found[w] = true
				from = from || fromLabels()[w]
			}
		}
	}
	return from && len(found) >= 3
}

func hasPrefixOf(s string, list []string) bool {
	for _, p := range list {
		if strings.HasPrefix(s, p) {
			return true
		}
	}
	return false
}

func containsOf(s string, list []string) bool {
	for _, p := range list {
		if strings.Contains(s, p) {
			return true
		}
	}
	return false
}

// phrases are beginnings of sentences, by first letter.
type phrases map[rune][]string

func byFirst(list ...string) func() phrases {
	return sync.OnceValue(func() phrases {
		p := phrases{}
		for _, s := range list {
			r, _ := utf8.DecodeRuneInString(s)
			p[r] = append(p[r], s)
		}
		return p
	})
}

// matchesStart says whether s begins with one of the phrases; contains whether it is one.
func (p phrases) matchesStart(s string) bool {
	r, _ := utf8.DecodeRuneInString(s)
	return hasPrefixOf(s, p[r])
}

func (p phrases) contains(s string) bool {
	r, _ := utf8.DecodeRuneInString(s)
	return slices.Contains(p[r], s)
}
