package testenv_test

import (
	"os"
	"testing"

	"github.com/embedsidecar/embedsidecar/testenv"
)

func TestMain(m *testing.M) {
	if run := os.Getenv(childEnv); run != "" {
		os.Exit(child(run))
	}
	os.Exit(testenv.Main(m))
}
