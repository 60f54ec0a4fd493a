package observe

import (
	"os"
	"testing"

	"github.com/embedsidecar/embedsidecar/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }
