package actions

import (
	"os"
	"os/user"
)

// Person is who sits before this program, as far as the machine knows: user@host.
func Person() string {
	name := "?"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name
}
