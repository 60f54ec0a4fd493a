package config

import (
	"fmt"
	"regexp"
	"strings"
)

// basePath is a path that stands in links, cookies and patterns of proxies as it is.
var basePath = regexp.MustCompile(`^(/[A-Za-z0-9_-][A-Za-z0-9._-]*)+$`)

// parseBasePath reads the path under which a proxy shows pages, and takes the slash at its end away.
func parseBasePath(v string) (string, error) {
	path := strings.TrimRight(v, "/")
	if path != "" && !basePath.MatchString(path) {
		return "", fmt.Errorf("expected a path such as /tools/embedsidecar, of letters, digits, dots, - and _, not %q", v)
	}
	return path, nil
}
