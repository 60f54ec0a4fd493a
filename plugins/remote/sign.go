package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/config"
)

// signer signs requests to Amazon Bedrock. It uses AWS's default credential chain: variables, shared files, a web
// identity role, the container or the machine.
type signer struct {
	mu  sync.Mutex
	aws *aws.Config // nil until it has been read
}

// regional matches the region in a Bedrock host name.
var regional = regexp.MustCompile(`(?:^|\.)bedrock-runtime(?:-fips)?\.([a-z0-9-]+)\.`)

func (s *signer) config(ctx context.Context) (*aws.Config, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.aws == nil {
		c, err := config.LoadDefaultConfig(ctx)
		if err != nil {
			return nil, err
		}
		s.aws = &c
	}
	return s.aws, nil
}

func (s *signer) sign(req *http.Request, body []byte) error {
	c, err := s.config(req.Context())
	if err != nil {
		return fmt.Errorf("read the configuration of AWS: %w", err)
	}
	region := c.Region
	if found := regional.FindStringSubmatch(req.URL.Hostname()); found != nil {
		region = found[1]
	}
	if region == "" {
		return errors.New("neither the URL nor AWS_REGION names a region")
	}
	credentials, err := c.Credentials.Retrieve(req.Context())
	if err != nil {
		return fmt.Errorf("find credentials of AWS: %w", err)
	}
	sum := sha256.Sum256(body)
	hash := hex.EncodeToString(sum[:])
	return v4.NewSigner().SignHTTP(req.Context(), credentials, req, hash, "bedrock", region, time.Now())
}
