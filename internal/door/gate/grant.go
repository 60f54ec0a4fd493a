package gate

import (
	"errors"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// The roles of tokens. The first two query, the others administer, which is another listener's.
const (
	RoleQuery    = "query"    // embed texts and search pipelines
	RoleEmbed    = "embed"    // embed texts, and see nothing of the database
	RoleViewer   = "viewer"   // see how things stand
	RoleOperator = "operator" // that, and pause, resume, retry and the like
	RoleAdmin    = "admin"    // that, see the configuration and reload plugins
)

// Roles are what a token may do.
var Roles = []string{RoleQuery, RoleEmbed, RoleViewer, RoleOperator, RoleAdmin}

// Grant is what a token lets its holder do. The zero Grant is that of whoever asks where no tokens are wanted:
// everything.
type Grant struct {
	Role string `json:"role"`
	// that may be searched, and whose models may be asked, or that may be administered; none: all
	Pipelines []string `json:"pipelines,omitempty"`
	// of several, by their names there; none: all
	Databases []string `json:"databases,omitempty"`
	// columns and values: only such rows are found, whatever is asked for
	Filter map[string][]string `json:"filter,omitempty"`
	// that searches run as; "": that of the program's connections
	DatabaseRole string `json:"database_role,omitempty"`
	// when the token ends by itself; zero: never
	Expires time.Time `json:"expires,omitzero"`
}

// Names of parameters that write a grant's limits down.
const (
	limitPipeline     = "pipeline"
	limitDatabase     = "database"
	limitFilter       = "filter."
	limitDatabaseRole = "database_role"
	limitExpires      = "expires"
)

// Limits writes what narrows a grant, as parameters of a URL: pipeline=docs&filter.tenant=7&database_role=reader. "":
// nothing does.
func (g Grant) Limits() string {
	v := url.Values{}
	for _, name := range g.Pipelines {
		v.Add(limitPipeline, name)
	}
	for _, name := range g.Databases {
		v.Add(limitDatabase, name)
	}
	for column, values := range g.Filter {
		v[limitFilter+column] = values
	}
	if g.DatabaseRole != "" {
		v.Set(limitDatabaseRole, g.DatabaseRole)
	}
	if !g.Expires.IsZero() {
		v.Set(limitExpires, g.Expires.UTC().Format(time.RFC3339))
	}
	return v.Encode()
}

// limit reads what Limits wrote.
func (g *Grant) limit(limits string) error {
	values, err := url.ParseQuery(limits)
	if err != nil {
		return errors.New("the limits are not of the form pipeline=NAME&database=NAME&filter.COLUMN=VALUE&database_role=ROLE&expires=TIME")
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		column, isFilter := strings.CutPrefix(name, limitFilter)
		switch {
		case name == limitPipeline:
			g.Pipelines = values[name]
		case name == limitDatabase:
			g.Databases = values[name]
		case name == limitDatabaseRole && len(values[name]) == 1:
			g.DatabaseRole = values[name][0]
		case name == limitExpires && len(values[name]) == 1:
			if g.Expires, err = time.Parse(time.RFC3339, values[name][0]); err != nil || g.Expires.IsZero() {
				return errors.New("expires is a time such as 2027-01-31T12:00:00Z")
			}
		case isFilter:
			if g.Filter == nil {
				g.Filter = map[string][]string{}
			}
			g.Filter[column] = values[name]
		default: // a limit that is not understood must not mean none
			return errors.New("the limits are pipeline, database, filter.COLUMN, database_role and expires, the latter two once")
		}
	}
	return nil
}

// check returns what is wrong with a grant.
func (g Grant) check() error {
	switch {
	case !slices.Contains(Roles, g.Role):
		return errors.New("a role is " + strings.Join(Roles, " or "))
	case g.Administers() && (len(g.Filter) > 0 || g.DatabaseRole != ""):
		return errors.New("a token with the role " + g.Role + " searches nothing: it takes no filter and no database role")
	case g.Role == RoleAdmin && len(g.Pipelines) > 0:
		return errors.New("a token with the role " + g.Role + " is for all pipelines: it takes none")
	case g.Role == RoleAdmin && len(g.Databases) > 0:
		return errors.New("a token with the role " + g.Role + " is for the whole program: it takes no databases")
	case g.Role == RoleEmbed && len(g.Pipelines)+len(g.Filter)+len(g.DatabaseRole) > 0:
		return errors.New("a token with the role " + g.Role +
			" searches nothing: it takes no pipelines, filter or database role")
	case slices.Contains(g.Pipelines, "") || slices.Contains(g.Databases, ""):
		return errors.New("the name of a pipeline or a database is empty")
	}
	given := append(slices.Concat(g.Pipelines, g.Databases), g.DatabaseRole)
	for column, values := range g.Filter {
		if column == "" || len(values) == 0 {
			return errors.New("a filter's column has no name, or no value")
		}
		given = append(append(given, column), values...)
	}
	for _, text := range given {
		if strings.ContainsRune(text, 0) || !utf8.ValidString(text) {
			return errors.New("a name or value holds a NUL character, or is not UTF-8")
		}
	}
	return nil
}

// Administers reports whether it is for the administration, where nothing is searched or embedded.
func (g Grant) Administers() bool {
	return g.Role == RoleViewer || g.Role == RoleOperator || g.Role == RoleAdmin
}

// Expired reports whether the token has ended by itself.
func (g Grant) Expired() bool { return !g.Expires.IsZero() && !time.Now().Before(g.Expires) }

// Unknown tells the holder of a token why he is not let in.
func (g Grant) Unknown() string {
	if g.Expired() {
		return "this token expired at " + g.Expires.UTC().Format(time.RFC3339)
	}
	return "this token is not known here"
}
