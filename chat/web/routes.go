package web

import (
	"bytes"
	"cmp"
	"net/http"
	"slices"
	"strings"

	"github.com/permesso-dev/permesso/chat"
)

// route is one thing that can be asked for. All but the door need a session.
type route struct {
	pattern string
	serve   func(*visit)
}

// inside lists the routes that need a session; their patterns stand behind
// /s/KEY.
func inside() []route {
	return []route{
		{"GET /{$}", (*visit).list},
		{"GET /events", (*visit).events},
		{"GET /r/{ws}/{id}", (*visit).request},
		{"POST /r/{ws}/{id}/decide", (*visit).decide},
		{"POST /r/{ws}/{id}/undo", (*visit).undo},
		{"GET /next", (*visit).next},
		{"GET /like", (*visit).like},
		{"GET /grants", (*visit).grants},
		{"POST /grants/revoke", (*visit).revoke},
		{"GET /rules", (*visit).rules},
		{"GET /history", (*visit).history},
		{"GET /audit", (*visit).audit},
		{"POST /audit/verify", (*visit).verify},
		{"GET /workspaces", (*visit).workspaces},
		{"POST /workspaces/pause", (*visit).pause},
		{"POST /workspaces/resume", (*visit).resume},
		{"GET /help", (*visit).help},
		{"POST /settings", (*visit).settings},
		{"POST /leave", (*visit).logOut},
	}
}

// Handler is everything, behind the guard.
func (s *Server) Handler() http.Handler {
	s.init()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.outside)
	mux.HandleFunc("GET /enter/{token}", s.door)
	mux.HandleFunc("POST /enter", s.knockAt)
	mux.Handle("GET /static/{file}", static())
	for _, r := range inside() {
		method, path, _ := strings.Cut(r.pattern, " ")
		mux.Handle(method+" /s/{key}"+path, s.within(r.serve))
	}
	return s.guard(mux)
}

// visit is one request of a session.
type visit struct {
	*Server
	rw     http.ResponseWriter
	r      *http.Request
	se     *session
	rights Rights
	lang   string
	w      *words
}

// within lets in who has a session and may still see something.
func (s *Server) within(serve func(*visit)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.complete() {
			s.refuse(w, r, http.StatusForbidden, refusedSession)
			return
		}
		se := s.sessionOf(r)
		if se == nil {
			s.refuse(w, r, http.StatusForbidden, refusedSession)
			return
		}
		v := &visit{Server: s, rw: w, r: r, se: se, rights: s.People.Rights(se.guest)}
		if len(v.rights.See) == 0 {
			s.leave(se)
			s.refuse(w, r, http.StatusForbidden, refusedSession)
			return
		}
		v.lang = chat.Language(languageIn(r, v.rights.Language))
		v.w = catalogue(v.lang)
		serve(v)
	})
}

// outside is what somebody sees who has no session.
func (s *Server) outside(w http.ResponseWriter, r *http.Request) {
	s.show(w, r, http.StatusOK, "outside", "")
}

// door shows a button and changes nothing: what prefetches a link uses it up
// otherwise. Whether the link is good is not said.
func (s *Server) door(w http.ResponseWriter, r *http.Request) {
	s.show(w, r, http.StatusOK, "door", r.PathValue("token"))
}

// knockAt makes a session of a link.
func (s *Server) knockAt(w http.ResponseWriter, r *http.Request) {
	token, ok := one(r, "token")
	if !ok || len(token) != 64 {
		s.refuse(w, r, http.StatusForbidden, refusedLink)
		return
	}
	se := s.enter(token)
	if se == nil {
		s.refuse(w, r, http.StatusForbidden, refusedLink)
		return
	}
	http.SetCookie(w, cookieOf(se))
	http.Redirect(w, r, "/s/"+se.key+"/", http.StatusSeeOther)
}

// one is a field of a form that is there exactly once. It is false where the
// body is too long, too slow, or no form.
func one(r *http.Request, name string) (string, bool) {
	if r.ParseForm() != nil || len(r.PostForm[name]) != 1 {
		return "", false
	}
	return r.PostForm[name][0], true
}

// refusal is why somebody is turned away; its words are in the catalogue.
type refusal int

const (
	refusedHost refusal = iota
	refusedFrame
	refusedOrigin
	refusedMethod
	refusedForm
	refusedSession
	refusedLink
)

// outer is a page for somebody without a session.
type outer struct {
	W     *words
	Lang  string
	Title string
	Text  string
	Token string
}

func (s *Server) refuse(w http.ResponseWriter, r *http.Request, code int, why refusal) {
	if code == http.StatusMethodNotAllowed {
		w.Header().Set("Allow", "GET, HEAD, POST")
	}
	w.Header().Set("Connection", "close") // what is left of a body is not worth reading
	o := outerIn(r)
	o.Text = o.W.Refusals[why]
	s.write(w, code, "refused", o)
}

func (s *Server) show(w http.ResponseWriter, r *http.Request, code int, name, token string) {
	o := outerIn(r)
	o.Token = token
	s.write(w, code, name, o)
}

func outerIn(r *http.Request) outer {
	lang := chat.Language(languageIn(r, r.Header.Get("Accept-Language")))
	w := catalogue(lang)
	return outer{W: w, Lang: lang, Title: w.Name}
}

// write renders all of a page before any of it is sent.
func (s *Server) write(w http.ResponseWriter, code int, name string, data any) {
	var b bytes.Buffer
	if err := templates().ExecuteTemplate(&b, name, data); err != nil {
		s.log(err)
		http.Error(w, "something went wrong here; the log says what", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write(b.Bytes()) // whoever asked may be gone
}

func (s *Server) render(to *bytes.Buffer, name string, data any) error {
	return templates().ExecuteTemplate(to, name, data)
}

// page is what every page inside has.
type page struct {
	W       *words
	Lang    string
	Title   string
	Base    string // where the session's paths begin
	Here    string // which of the pages it is
	Stream  string // where its events come from; "": it has none
	Refresh bool   // without JavaScript the page is loaded again now and then
	Waiting int
	Keys    bool
	Rights  Rights
	Who     string
	Note    *note
	Langs   []string
}

func (v *visit) page(here, title string) page {
	p := page{
		W: v.w, Lang: v.lang, Title: title, Base: "/s/" + v.se.key + "/", Here: here, Keys: keysIn(v.r), Rights: v.rights,
		Who: chat.Escape(cmp.Or(v.rights.Name, v.se.guest.Person.Name, v.se.guest.Person.ID)), Langs: chat.Languages(), Note: v.note(),
	}
	if mine, _, err := v.mine(); err == nil {
		p.Waiting = len(mine)
	}
	return p
}

// mine is what waits for this guest, and the revision of that.
func (v *visit) mine() ([]*item, int64, error) {
	list, rev, err := v.waiting(v.r.Context())
	if err != nil {
		return nil, 0, err
	}
	return v.seen(v.se.guest, v.rights, list), rev, nil
}

// fail says what went wrong on a page of its own.
func (v *visit) fail(code int, text string) {
	p := struct {
		page
		Text string
	}{v.page("", v.w.Name), text}
	v.write(v.rw, code, "fail", p)
}

// broken is for what is wrong on our side.
func (v *visit) broken(err error) {
	v.log(err)
	v.fail(http.StatusInternalServerError, v.w.Broken)
}

// go303 leads on to a page inside, after something was done.
func (v *visit) go303(path string) {
	http.Redirect(v.rw, v.r, "/s/"+v.se.key+"/"+path, http.StatusSeeOther)
}

func (v *visit) logOut() {
	v.leave(v.se)
	gone := cookieOf(v.se) //nolint:gosec // the same cookie, without anything in it
	gone.Value, gone.MaxAge = "", -1
	http.SetCookie(v.rw, gone)
	http.Redirect(v.rw, v.r, "/", http.StatusSeeOther)
}

const prefsName = "permesso_ui_prefs"

// prefs are the choices of a browser: a language or none, and whether keys are
// off. They are no secret and outlive the session.
func prefs(r *http.Request) (lang string, keysOff bool) {
	c, err := r.Cookie(prefsName)
	if err != nil {
		return "", false
	}
	lang, off, _ := strings.Cut(c.Value, ".")
	if !slices.Contains(chat.Languages(), lang) {
		lang = ""
	}
	return lang, off == "nokeys"
}

func languageIn(r *http.Request, otherwise string) string {
	if lang, _ := prefs(r); lang != "" {
		return lang
	}
	return otherwise
}

func keysIn(r *http.Request) bool {
	_, off := prefs(r)
	return !off
}

func (v *visit) settings() {
	lang, _ := one(v.r, "lang")
	keys, _ := one(v.r, "keys")
	if !slices.Contains(chat.Languages(), lang) || keys != "on" && keys != "off" {
		v.fail(http.StatusBadRequest, v.w.BadForm)
		return
	}
	value := lang
	if keys == "off" {
		value += ".nokeys"
	}
	http.SetCookie(v.rw, &http.Cookie{ //nolint:gosec // it is no secret, and loopback has no TLS
		Name: prefsName, Value: value, Path: "/", MaxAge: 365 * 24 * 3600, HttpOnly: true, SameSite: http.SameSiteStrictMode,
	})
	v.go303("help")
}

func (v *visit) help() {
	v.write(v.rw, http.StatusOK, "help", v.page("help", v.w.Help))
}
