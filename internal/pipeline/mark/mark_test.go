package mark

import (
	"testing"

	"pgregory.net/rapid"
)

func TestDecode_GivesWhatEncodeWrote(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		maker := NewMaker([]byte("secret"), 3)
		var tags []Tag
		for _, key := range rapid.SliceOf(rapid.String()).Draw(t, "keys") {
			tags = append(tags, maker.Tag(1, key, []byte("source"), []byte("vector")))
		}
		set, err := Decode(Encode(tags))
		if err != nil {
			t.Fatal(err)
		}
		for _, tag := range tags {
			if _, ok := set[tag]; !ok {
				t.Fatalf("tag %x was lost", tag)
			}
		}
	})
}

func TestTag_DependsOnEveryPartAndOnTheSecret(t *testing.T) {
	base := NewMaker([]byte("secret"), 3).Tag(1, "key", []byte("source"), []byte("vector"))
	others := map[string]Tag{
		"pipeline":    NewMaker([]byte("secret"), 3).Tag(2, "key", []byte("source"), []byte("vector")),
		"key":         NewMaker([]byte("secret"), 3).Tag(1, "kez", []byte("source"), []byte("vector")),
		"source":      NewMaker([]byte("secret"), 3).Tag(1, "key", []byte("sourcf"), []byte("vector")),
		"vector":      NewMaker([]byte("secret"), 3).Tag(1, "key", []byte("source"), []byte("vectos")),
		"transaction": NewMaker([]byte("secret"), 4).Tag(1, "key", []byte("source"), []byte("vector")),
		"secret":      NewMaker([]byte("guess"), 3).Tag(1, "key", []byte("source"), []byte("vector")),
		"border":      NewMaker([]byte("secret"), 3).Tag(1, "keys", []byte("ource"), []byte("vector")),
	}
	for part, tag := range others {
		if tag == base {
			t.Errorf("another %s gives the same tag", part)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte{})
	f.Add(Encode(nil))
	f.Add(Encode([]Tag{{1, 2, 3}}))
	f.Fuzz(func(t *testing.T, content []byte) {
		if set, err := Decode(content); err == nil && len(set) > (len(content)-1)/TagSize {
			t.Errorf("%d tags of %d bytes", len(set), len(content))
		}
	})
}

func TestDecode_RefusesMoreThanAWriteBackHas(t *testing.T) {
	if set, err := Decode(Encode(make([]Tag, MostTags))); err != nil || len(set) != 1 {
		t.Errorf("as many as a batch may have: %d, %v", len(set), err)
	}
	if set, err := Decode(Encode(make([]Tag, MostTags+1))); err == nil {
		t.Errorf("one more: %d, want an error", len(set))
	}
}
