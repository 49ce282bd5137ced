package email

import (
	"regexp"
	"strings"
)

// The beginnings of automatic emails, in lower case, with single blanks and straight
// apostrophes (see plainLine). The expressions match only at the beginning: the subject
// of a person's reply begins with "Re:" or similar, so no title that an agent chooses
// makes the reply look automatic. \b works for ASCII letters only, so it follows no
// other letter.

// subjects begin out-of-office notes, receipts and bounces.
var subjects = anyOf(
	// English
	`auto(matic|mated)?[- ]?(reply|response|answer|responder)\b`, `auto:`, `out of( the)? office\b`, `ooo\b`, `vacation( reply| message| notice)?:`,
	`((i am |i'm )?(away )?)on (vacation|holiday|annual leave|leave)\b`, `away from (the office|my (desk|mail|e-?mail))`,
	`(un|not )deliver(ed|able)\b`, `delivered: `, `delivery[ -](status|fail|notif|report|has|problem|delay)`, `(mail|message|e-?mail) (delivery|system|not|could not|rejected|undeliver)`,
	`failure (notice|delivery)`, `(returned|returning|bounced) (mail|message|e-?mail)\b`, `warning: (could not|message)`, `non ?-?delivery`, `(not )?read: `, `read (receipt|notification)`, `complaint about message`,
	// German
	`(automatische|auto-?) ?(antwort|r(ü|ue)ckantwort|nachricht|e-?mail)`, `abwesen(heit|d)`, `nicht im (b(ü|ue)ro|haus)\b`, `unzustellbar`, `(lesebest(ä|ae)tigung|gelesen|ungelesen):`,
	// French
	`r(é|e)ponse automatique`, `(message d'|notification d')?absen(ce|te?)\b`, `en (cong(é|e)s?|vacances)`, `non remis`, `lu ?: `, `(é|e)chec de (la )?(remise|distribution)`,
	// Italian
	`(risposta automatica|risponditore automatico|messaggio automatico)`, `fuori (sede|ufficio)`, `assen(te|za)\b`, `in ferie\b`, `non recapitabile`, `lett(ura|o) ?: `, //nolint:misspell // Italian
	// Spanish
	`(respuesta autom(á|a)tica|mensaje autom(á|a)tico)`, `(estoy )?fuera de (la )?oficina`, `ausen(te|cia)\b`, `de vacaciones`, `no se puede entregar`, `le(í|i)do: `,
	// Portuguese
	`(resposta|mensagem) autom(á|a)tica`, `fora d[oe] escrit(ó|o)rio`, `aus(ê|e)ncia`, `de f(é|e)rias`, `lida: `,
	// Dutch
	`automatische? (antwoord|bericht|reactie)`, `afwezig`, `niet aanwezig`, `(ik ben )?met vakantie`, `gelezen: `, `onbestelbaar`,
	// Swedish, Danish, Norwegian
	`auto(matiskt?)?[ -]?svar`, `frånvaro`, `fravær`, `på (semester|ferie)`, `(ej|inte|ikke) på kontoret`, `l(ä|æ)st: `,
	// Finnish
	`automaattinen (vastaus|viesti)`, `poissa`, `lomalla`,
	// Polish, Czech, Slovak
	`(automatyczna odpowied(ź|z)|odpowied(ź|z) automatyczna|autoodpowied(ź|z))`, `poza biurem`, `nieobecno`, `przeczytano: `, `automatick(á|a) odpov?(ě|e)(ď|d)`, `nep(ř|r)(í|i)tomn`, `mimo kancel`,
	// Hungarian, Romanian, Turkish, Greek
	`automatikus v(á|a)lasz`, `h(á|a)zon k(í|i)v(ü|u)l`, `szabads(á|a)gon`, `r(ă|a)spuns automat`, `otomatik (yanıt|yanit|cevap)`, `ofis dışında`, `i\x{307}?zindeyim`, `αυτ(ό|ο)ματη απ(ά|α)ντηση`, `εκτ(ό|ο)σ γραφε(ί|ι)ου`,
	// Russian, Ukrainian
	`автоответ`, `автоматический ответ`, `автоматична відповідь`, `(нет на месте|вне офиса|в отпуске|отсутств)`, `не ?доставлено`, `прочтено: `,
	// Chinese, Japanese, Korean
	`自动(回复|答复|回覆)`, `自動(回覆|回復|答覆|回复)`, `不在办公室`, `系统退信`, `自動(応答|返信)`, `不在(通知|のお知らせ|連絡)`, `(配信|送信)不能`, `メールエラー`, `メッセージを配信`, `자동 ?(회신|응답|답장)`, `부재중`, `開封済み`, `已读`,
	// Hebrew, Arabic
	`(תגובה אוטומטית|מענה אוטומטי)`, `(ال)?رد (ال)?تلقائي`,
)

// openings are the first lines of out-of-office notes and of bounces.
var openings = anyOf(
	// English
	greeted(`i('m| am| will be|'ll be)( currently| now| presently)? ((out of|away from|not in) (the |my )?(office|desk)|on (vacation|holidays?|(annual |parental |maternity |sick )?leave))\b`),
	greeted(`i('m| am)( currently| presently) (away|absent|travell?ing|unavailable)\b`), greeted(`i('m| am| will be|'ll be) (away|absent|travell?ing|unavailable)\b.{0,40}\b(until|till|from|between|through|with (limited|no) access)\b`),
	`(this is an? )?(automatic|automated|auto-?generated)( e-?mail)? (reply|response|message|notification)`, `this (e-?mail|mail|message) (was|has been|is) (automatically|auto-?)`, `out of( the)? office\b`, `please do not reply to this (e-?mail|message)`,
	// German
	greeted(`ich bin .{0,60}(nicht im (b(ü|ue)ro|haus)|abwesend|im urlaub|au(ß|ss)er haus|nicht erreichbar|wieder (im b(ü|ue)ro|erreichbar))\b`), greeted(`(vom|bis|ab|zur ?zeit|derzeit|aktuell) .{0,60}bin ich .{0,40}(nicht (im|erreichbar)|abwesend|urlaub)`),
	`(dies|das) ist eine automatisch`, `diese (e-?mail|mail|nachricht) (wurde|wird) automatisch`,
	// French
	greeted(`je (suis|serai)( actuellement)? (absente?|en cong(é|e)s?|en vacances|en d(é|e)placement|hors du bureau)`), `ce(ci| message) est une? .{0,20}automatique`, greeted(`actuellement absente?\b`),
	// Italian
	greeted(`(sono|sarò|saro')( attualmente| momentaneamente)? (fuori (sede|ufficio)|assente|in ferie)\b`), `quest[oa] (è|e') una? (messaggio|risposta) (generat[oa] )?automatic`,
	// Spanish
	greeted(`(estoy|estar(é|e)|me encuentro)( actualmente)? (fuera de (la )?oficina|ausente|de vacaciones)\b`), `est[ea] es una? (mensaje|respuesta) autom(á|a)tic`,
	// Portuguese
	greeted(`(estou|estarei|encontro-me)( atualmente| de momento)? (fora d[oe] escrit(ó|o)rio|ausente|de f(é|e)rias)\b`), `est[ae] (é|e) uma (mensagem|resposta) autom(á|a)tica`, //nolint:misspell // Portuguese
	// Dutch
	greeted(`(ik ben|op dit moment ben ik|momenteel ben ik) .{0,50}(afwezig|niet (op kantoor|aanwezig|bereikbaar)|met (vakantie|verlof))\b`), `dit is een automatisch`,
	// Swedish, Danish, Norwegian
	greeted(`jag är .{0,40}(inte på kontoret|på semester|borta från kontoret|föräldraledig)\b`), greeted(`jeg er .{0,40}(ikke på kontoret|på ferie|ude af kontoret|bortreist)\b`), `dett[ae] (är|er) ett? automatisk`,
	// Finnish
	greeted(`olen .{0,40}(poissa (toimistolta|töistä)|lomalla|vapaalla)\b`), `tämä on automaattinen`,
	// Polish, Czech, Hungarian, Romanian, Turkish
	greeted(`(jestem|będę|obecnie jestem) .{0,40}(poza biurem|nieobecn|na urlopie)`), `to jest (wiadomość|odpowiedź) (wygenerowana )?automatyczn`, greeted(`(jsem|budu|momentálně) .{0,40}(mimo kancelář|nepřítom|na dovolené)`),
	greeted(`.{0,40}(szabadságon vagyok|nem vagyok az irodában)`), greeted(`(sunt|voi fi) .{0,30}([îi]n concediu)`), greeted(`.{0,60}(ofis dışındayım|i\x{307}?zindeyim|tatildeyim)`),
	// Greek, Russian, Ukrainian
	greeted(`(είμαι|θα είμαι|βρίσκομαι|απουσιάζω) .{0,40}(εκτόσ γραφείου|σε άδεια|έωσ|μέχρι)`), greeted(`(я )?((сейчас|в настоящее время) )?(я )?(нахожусь )?(в отпуске|отсутствую|не в офисе|вне офиса)`), `это (письмо|сообщение) (создано|отправлено|сформировано) автоматически`, greeted(`(я )?((зараз|наразі) )?(я )?(у відпустці|не в офісі|відсутн)`),
	// Chinese, Japanese, Korean
	`.{0,20}我(目前|现在|正在|将于|正).{0,20}(不在办公室|休假|出差|外出)`, `.{0,10}(这是|此为|本邮件(是|为|由)).{0,6}(自动|系统)`, `.{0,30}(不在にして(おり|い)ます|休暇を(いただいて|頂いて|取得して)|外出して(おり|い)ます)`, `.{0,10}(このメール|本メール)は.{0,12}自動`, `.{0,30}(부재중|휴가 ?중)`,
	// Bounces
	`.{0,40}\bmail (delivery (sub)?system|system at host)`, `hi\. this is the .{0,30}(program|system|server)\b`, `i'm sorry to have to inform you`, `i'm afraid i wasn't able to deliver`, `the original message was received at`,
	`((your|the|this|a|following) ){0,2}(e-?mail |mail )?(message|mail|e-?mail)s?\b.{0,90}\b(undeliverable|undelivered|did not reach|failed to reach|(could not|couldn't|cannot|can't|was not|wasn't|has not been|have not been|not be) (be )?delivered)\b`,
	`(attempted )?delivery\b.{0,60}\b(failed|failure|delayed|unsuccessful)\b`, `(unable|failed) to deliver`, `undeliver(able|ed) `, `[- ]*the following (address|recipient)`, `.{0,60}\b(delivery status notification|non-?delivery report)`, `(your )?message (did not reach|to the following)`, `error: invalid user address`, `(could not|cannot) be delivered to\b`,
)

// greeted is a sentence, optionally after a greeting or thanks on the same line.
func greeted(sentence string) string {
	return `((hello|hi|dear|thank|good|hallo|liebe|sehr geehrte|guten|vielen dank|danke|bonjour|merci|madame|cher|buongiorno|grazie|gentile|salve|hola|gracias|estimad|olá|obrigad|prezad|beste|geachte|dank|bedankt|hej|tack|tak|hei|kiitos|dzień|dziękuję|szanown|dobrý|děkuji|tisztelt|köszön|bună|mulțumesc|merhaba|teşekkür|γεια|ευχαριστ|здравствуйте|спасибо|добрый|добрий|дякую)[^.!]{0,80}[.,!:] ?)?` + sentence
}

// anyOf matches one of the expressions at the beginning.
func anyOf(expressions ...string) func() *regexp.Regexp {
	return pattern(`^(?:` + strings.Join(expressions, "|") + `)`)
}
