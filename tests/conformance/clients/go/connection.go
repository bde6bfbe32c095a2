package main

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	pb "conformance/danubepb"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
)

// client holds what producers and consumers share: connections, lookup, health pings.
type client struct {
	serviceURL  string
	requestID   atomic.Uint64
	mu          sync.Mutex
	connections map[address]*grpc.ClientConn
}

// address says where a topic is served: who owns it, where to dial, and whether a proxy is between.
type address struct {
	brokerURL  string
	connectURL string
	proxy      bool
}

func newClient(serviceURL string) *client {
	return &client{serviceURL: serviceURL, connections: map[address]*grpc.ClientConn{}}
}

func (c *client) connection(at address) (*grpc.ClientConn, error) {
	at.proxy = at.brokerURL != at.connectURL
	c.mu.Lock()
	defer c.mu.Unlock()
	if known, ok := c.connections[at]; ok {
		return known, nil
	}
	target := strings.TrimPrefix(strings.TrimPrefix(at.connectURL, "http://"), "https://")
	dialled, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	c.connections[at] = dialled
	return dialled, nil
}

func (c *client) discovery(url string) (pb.DiscoveryClient, error) {
	connection, err := c.connection(address{brokerURL: url, connectURL: url})
	if err != nil {
		return nil, err
	}
	return pb.NewDiscoveryClient(connection), nil
}

func (c *client) lookup(ctx context.Context, url, topic string) (address, error) {
	discovery, err := c.discovery(url)
	if err != nil {
		return address{}, err
	}
	request := &pb.TopicLookupRequest{RequestId: c.requestID.Add(1), Topic: topic}
	answer, err := discovery.TopicLookup(ctx, request)
	if err != nil {
		return address{}, err
	}
	if answer.ResponseType == pb.TopicLookupResponse_Failed {
		return address{}, errors.New("lookup failed")
	}
	return address{answer.BrokerUrl, answer.ConnectUrl, answer.Proxy}, nil
}

func (c *client) partitions(ctx context.Context, topic string) ([]string, error) {
	discovery, err := c.discovery(c.serviceURL)
	if err != nil {
		return nil, err
	}
	request := &pb.TopicLookupRequest{RequestId: c.requestID.Add(1), Topic: topic}
	answer, err := discovery.TopicPartitions(ctx, request)
	if err != nil {
		return nil, err
	}
	return answer.Partitions, nil
}

// ping reports the health of one producer or consumer: at once, then at every interval, until the first
// failed call or until ctx ends. A CLOSE raises the flag and the pings go on.
func (c *client) ping(ctx context.Context, at address, kind pb.HealthCheckRequest_ClientType, id uint64, closed *atomic.Bool) {
	connection, err := c.connection(at)
	if err != nil {
		return
	}
	health := pb.NewHealthCheckClient(connection)
	for {
		request := &pb.HealthCheckRequest{RequestId: c.requestID.Add(1), Client: kind, Id: id}
		answer, err := health.HealthCheck(at.outgoing(ctx), request)
		if err != nil {
			return
		}
		if answer.Status == pb.HealthCheckResponse_CLOSE {
			closed.Store(true)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pingInterval):
		}
	}
}

// outgoing adds the routing header a proxy needs.
func (at address) outgoing(ctx context.Context) context.Context {
	if !at.proxy {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, "x-danube-broker-url", at.brokerURL)
}
