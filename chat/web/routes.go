package web

import (
	"bytes"
	"cmp"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/chat"
)

// route is a pattern with its handler.
type route struct {
	pattern string
	serve   func(*visit)
}

// sessionRoutes lists the routes that need a session. Their patterns follow
// /s/KEY.
func sessionRoutes() []route {
	return []route{
		{"GET /{$}", (*visit).list},
		{"GET /events", (*visit).events},
		{"GET /r/{ws}/{id}", (*visit).request},
		{"POST /r/{ws}/{id}/decide", (*visit).decide},
		{"GET /r/{ws}/{id}/rule", (*visit).proposeRule},
		{"POST /r/{ws}/{id}/undo", (*visit).undo},
		{"POST /r/{ws}/{id}/reveal", (*visit).reveal},
		{"POST /r/{ws}/{id}/clear-taints", (*visit).clearTaints},
		{"GET /next", (*visit).next},
		{"GET /like", (*visit).similar},
		{"GET /grants", (*visit).grants},
		{"POST /grants/revoke", (*visit).revoke},
		{"GET /rules", (*visit).rules},
		{"GET /history", (*visit).history},
		{"GET /audit", (*visit).audit},
		{"POST /audit/verify", (*visit).verify},
		{"GET /workspaces", (*visit).workspaces},
		{"POST /workspaces/pause", (*visit).pause},
		{"POST /workspaces/resume", (*visit).resume},
		{"POST /workspaces/clear-taints", (*visit).clearWorkspaceTaints},
		{"GET /help", (*visit).help},
		{"POST /settings", (*visit).settings},
		{"POST /leave", (*visit).logout},
		{"POST /push/subscribe", (*visit).subscribe},
		{"POST /push/unsubscribe", (*visit).unsubscribe},
	}
}

// Handler returns all routes, behind the guard.
func (s *Server) Handler() http.Handler {
	s.init()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.noSessionPage)
	mux.HandleFunc("GET /enter/{token}", s.loginPage)
	mux.HandleFunc("POST /enter", s.login)
	mux.HandleFunc("GET /static/{file}", static)
	mux.HandleFunc("GET /worker.js", worker)
	mux.HandleFunc("GET /r/{ws}/{id}", s.openPage)
	mux.HandleFunc("GET /open", s.openPage)
	for _, r := range sessionRoutes() {
		method, path, _ := strings.Cut(r.pattern, " ")
		mux.Handle(method+" /s/{key}"+path, s.requireSession(r.serve))
	}
	return s.guard(s.withNotFound(mux))
}

// withNotFound answers addresses that no route has with a page.
func (s *Server) withNotFound(mux *http.ServeMux) http.Handler {
	inSession := http.NewServeMux()
	inSession.Handle("/s/{key}/", s.requireSession(func(v *visit) { v.fail(http.StatusNotFound, v.w.NotFoundText) }))
	inSession.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		p := publicPage(r)
		p.Title, p.Text = catalog(p.Lang).NotFoundTitle, catalog(p.Lang).NotFoundText
		s.write(w, http.StatusNotFound, "not-found", p)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		other := r.Clone(r.Context())
		other.Method = map[string]string{http.MethodPost: http.MethodGet}[r.Method]
		if other.Method == "" {
			other.Method = http.MethodPost
		}
		_, pattern := mux.Handler(r)
		_, otherPattern := mux.Handler(other)
		switch {
		case pattern != "":
			mux.ServeHTTP(w, r)
		case otherPattern != "":
			s.refuse(w, r, http.StatusMethodNotAllowed, refusedMethod)
		default:
			inSession.ServeHTTP(w, r)
		}
	})
}

// visit is one HTTP request with a valid session.
type visit struct {
	*Server
	rw     http.ResponseWriter
	r      *http.Request
	se     *session
	rights Rights
	lang   string
	w      *words
	open   bool // this page shows what cards mask
}

// requireSession refuses HTTP requests without a session, and those of users who
// may see no workspace any more.
func (s *Server) requireSession(serve func(*visit)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.configured() {
			s.refuse(w, r, http.StatusForbidden, refusedSession)
			return
		}
		se := s.findSession(r)
		if se == nil {
			s.refuse(w, r, http.StatusForbidden, refusedSession)
			return
		}
		v := &visit{Server: s, rw: w, r: r, se: se, rights: s.People.Rights(se.user)}
		if len(v.rights.See) == 0 {
			s.endSession(se)
			s.refuse(w, r, http.StatusForbidden, refusedSession)
			return
		}
		v.lang = chat.Language(languageIn(r, v.rights.Language))
		v.w = catalog(v.lang)
		serve(v)
	})
}

// noSessionPage is the page at / for a browser without a session.
func (s *Server) noSessionPage(w http.ResponseWriter, r *http.Request) {
	s.show(w, r, "no-session", "")
}

// loginPage shows a button and changes nothing: otherwise a program that
// prefetches the link would use it up. The page does not tell whether the link is
// valid.
func (s *Server) loginPage(w http.ResponseWriter, r *http.Request) {
	s.show(w, r, "login", r.PathValue("token"))
}

// login redeems a link and starts a session.
func (s *Server) login(w http.ResponseWriter, r *http.Request) {
	token, ok := formValue(r, "token")
	if !ok || len(token) != 64 {
		s.refuse(w, r, http.StatusForbidden, refusedLink)
		return
	}
	se := s.redeemLink(token)
	if se == nil {
		s.refuse(w, r, http.StatusForbidden, refusedLink)
		return
	}
	http.SetCookie(w, sessionCookie(se))
	to, _ := formValue(r, "to")
	http.Redirect(w, r, "/s/"+se.key+"/"+linkedPath(to), http.StatusSeeOther) //nolint:gosec // linkedPath checks it
}

// formValue returns a form field that is present exactly once. ok is false if it
// is not, or if the body is too long, too slow, or no form.
func formValue(r *http.Request, name string) (string, bool) {
	if r.ParseForm() != nil || len(r.PostForm[name]) != 1 {
		return "", false
	}
	return r.PostForm[name][0], true
}

// refusal is the reason why an HTTP request is refused; the catalog has its text.
type refusal string

const (
	refusedHost    refusal = "host"
	refusedFrame   refusal = "frame"
	refusedOrigin  refusal = "origin"
	refusedMethod  refusal = "method"
	refusedForm    refusal = "form"
	refusedSession refusal = "session"
	refusedLink    refusal = "link"
)

func (s *Server) refuse(w http.ResponseWriter, r *http.Request, code int, why refusal) {
	if code == http.StatusMethodNotAllowed {
		w.Header().Set("Allow", "GET, HEAD, POST")
	}
	w.Header().Set("Connection", "close") // do not read the rest of the body
	p := publicPage(r)
	p.Text = catalog(p.Lang).Refusals[why]
	s.write(w, code, "refused", p)
}

func (s *Server) show(w http.ResponseWriter, r *http.Request, name, token string) {
	p := publicPage(r)
	p.Token, p.To = token, linkedPath(r.URL.Query().Get("to"))
	s.write(w, http.StatusOK, name, p)
}

// publicPage is a page that needs no session.
func publicPage(r *http.Request) page {
	lang := chat.Language(languageIn(r, r.Header.Get("Accept-Language")))
	return page{W: textsIn(lang), Lang: lang, Title: catalog(lang).Name}
}

// write renders the complete page before it sends any of it.
func (s *Server) write(w http.ResponseWriter, code int, name string, data any) {
	var b bytes.Buffer
	if err := templates().ExecuteTemplate(&b, name, data); err != nil {
		s.log(err)
		http.Error(w, "internal error; see the daemon's log", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write(b.Bytes()) // the browser may have disconnected
}

func (s *Server) render(to *bytes.Buffer, name string, data any) error {
	return templates().ExecuteTemplate(to, name, data)
}

// page is the data that every page has. Those without a session have little of it.
type page struct {
	W       texts
	Lang    string
	Title   string
	Base    string // path prefix of the session
	Here    string // name of the page
	Stream  string // path of its event stream; "": none
	Refresh bool   // without JavaScript, the browser reloads the page regularly
	Waiting int
	Keys    bool
	Rights  Rights
	Who     string
	Note    *note
	Pauses  pauseBanner
	Langs   []string
	Text    string // why there is nothing else
	Token   string // of a login link
	To      string // the page of a request that it leads to; "": the list

	visit *visit
}

// OneLine returns text of an agent or operator on one line, with secrets masked.
func (p page) OneLine(text string) string { return p.visit.oneLine(text) }

// Time returns a time as it is displayed.
func (p page) Time(t time.Time) displayTime { return p.visit.displayTime(t) }

func (v *visit) page(here, title string) page {
	p := page{
		W: textsIn(v.lang), Lang: v.lang, Title: title, Base: "/s/" + v.se.key + "/", Here: here, Keys: keysIn(v.r), Rights: v.rights,
		Who: chat.Escape(cmp.Or(v.rights.Name, v.se.user.Person.Name, v.se.user.Person.ID)), Langs: chat.Languages(), Note: v.currentNote(), Pauses: v.pauseBanner(v.pauses()), visit: v,
	}
	if items, _, err := v.visiblePending(); err == nil {
		p.Waiting = len(items)
	}
	return p
}

// pauseBanner is the data of the one banner that tells of all pauses.
type pauseBanner struct {
	W    texts
	Base string
	List []pause
}

func (v *visit) pauseBanner(list []pause) pauseBanner {
	return pauseBanner{textsIn(v.lang), "/s/" + v.se.key + "/", list}
}

// visiblePending returns the pending requests that this user may see, and their
// revision.
func (v *visit) visiblePending() ([]*item, int64, error) {
	list, rev, err := v.waiting(v.r.Context())
	if err != nil {
		return nil, 0, err
	}
	return v.filterVisible(v.se.user, v.rights, list), rev, nil
}

// fail writes an error page.
func (v *visit) fail(code int, text string) {
	p := v.page("", v.w.Name)
	if p.Text = text; code == http.StatusNotFound {
		p.Title = v.w.NotFoundTitle
	}
	v.write(v.rw, code, "fail", p)
}

// internalError logs err and writes an error page without its text.
func (v *visit) internalError(err error) {
	v.log(err)
	v.fail(http.StatusInternalServerError, v.w.InternalError)
}

// redirect sends the browser to a page of the session, after a POST.
func (v *visit) redirect(path string) {
	http.Redirect(v.rw, v.r, "/s/"+v.se.key+"/"+path, http.StatusSeeOther)
}

func (v *visit) logout() {
	v.endSession(v.se)
	gone := sessionCookie(v.se) //nolint:gosec // the same cookie without a value
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
	lang, _ := formValue(v.r, "lang")
	keys, _ := formValue(v.r, "keys")
	if !slices.Contains(chat.Languages(), lang) || keys != "on" && keys != "off" {
		v.fail(http.StatusBadRequest, v.w.BadForm)
		return
	}
	value := lang
	if keys == "off" {
		value += ".nokeys"
	}
	http.SetCookie(v.rw, &http.Cookie{ //nolint:gosec // the value is no secret, and loopback has no TLS
		Name: prefsName, Value: value, Path: "/", MaxAge: 365 * 24 * 3600, HttpOnly: true, SameSite: http.SameSiteStrictMode,
	})
	v.redirect("help")
}

func (v *visit) help() {
	v.write(v.rw, http.StatusOK, "help", v.page("help", v.w.Help))
}
