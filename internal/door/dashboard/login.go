package dashboard

import (
	"cmp"
	"net/http"

	"github.com/embedsidecar/embedsidecar/internal/door/gate"
)

// signingIn is the data of the sign-in page.
type signingIn struct {
	Itself bool // submit a token in the URL at once, without a click
	Wrong  string
}

// loginPage asks for a token. If another site led here, or the browser has a session, a token in the URL may be an
// attacker's, who wants the user to act in the attacker's name.
func (d *Dashboard) loginPage(w http.ResponseWriter, r *http.Request) {
	from := r.Header.Get("Sec-Fetch-Site")
	_, known := gate.CallerOf(r.Context())
	d.render(w, r, view{
		page: "login", title: "Sign in", bare: true,
		data: signingIn{Itself: !known && (from == "none" || from == "same-origin")},
	})
}

// login exchanges a token for a session.
func (d *Dashboard) login(w http.ResponseWriter, r *http.Request) {
	cookie, err := gate.SignIn(r.Context(), r.PostFormValue("token"))
	if err != nil {
		p := d.o.Service.ProblemOf(r.Context(), err)
		d.render(w, r, view{page: "login", title: "Sign in", bare: true, status: p.Status, data: signingIn{Wrong: p.Detail}})
		return
	}
	http.SetCookie(w, cookie)
	http.Redirect(w, r, d.at("/"), http.StatusSeeOther)
}

func (d *Dashboard) logout(w http.ResponseWriter, r *http.Request) {
	http.SetCookie(w, gate.SignOut(r.Context()))
	http.Redirect(w, r, d.at("/login"), http.StatusSeeOther)
}

// theme stores the chosen theme in a cookie.
func (d *Dashboard) theme(w http.ResponseWriter, r *http.Request) {
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // it holds no secret, and is Secure where the connection is
		Name: themeCookie, Value: themeOf(r.PostFormValue("theme")), Path: cmp.Or(d.o.Base, "/"),
		MaxAge: int(themeAge.Seconds()), HttpOnly: true, Secure: r.TLS != nil, SameSite: http.SameSiteLaxMode,
	})
	http.Redirect(w, r, d.at(back(r)), http.StatusSeeOther) //nolint:gosec // back leads to pages of ours alone
}
