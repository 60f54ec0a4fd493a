package config

import "testing"

func TestParseBasePath(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"": "", "/": "", "/tools/embedsidecar": "/tools/embedsidecar", "/tools/embedsidecar/": "/tools/embedsidecar",
		"/a.b_c-1": "/a.b_c-1",
	} {
		if got, err := parseBasePath(in); err != nil || got != want {
			t.Errorf("parseBasePath(%q) = %q, %v, want %q", in, got, err, want)
		}
	}
	for _, in := range []string{
		"tools", "//evil.example", "/a//b", "/../a", "/a/..", "/.", `/a"b`, "/a b", "/a?b", "/a%2fb", "https://host/a", "/a\x00",
	} {
		if got, err := parseBasePath(in); err == nil {
			t.Errorf("parseBasePath(%q) = %q", in, got)
		}
	}
}
