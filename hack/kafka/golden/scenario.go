package main

import (
	"context"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

func ptr[T any](v T) *T { return &v }

// single is the plain life of one combined node.
func single(a *admin, dir string) {
	a.createTopic("orders", 3, nil, "min.insync.replicas", "1", "index.interval.bytes", "64")
	a.createTopic("gone", 2, nil, "retention.ms", "1000")
	a.setConfig(kmsg.ConfigResourceTypeTopic, "orders", "retention.ms", ptr("3600000"))
	a.setConfig(kmsg.ConfigResourceTypeTopic, "orders", "max.message.bytes", ptr("200000"))
	a.setConfig(kmsg.ConfigResourceTypeTopic, "orders", "max.message.bytes", nil)
	a.setConfig(kmsg.ConfigResourceTypeBroker, "", "log.retention.ms", ptr("7200000"))
	a.setConfig(kmsg.ConfigResourceTypeBroker, "1", "log.cleaner.threads", ptr("1"))
	a.produce("orders")
	a.waitSnapshot(dir)
	a.deleteTopic("gone")
	a.createTopic("gone", 1, nil)
	req := kmsg.NewPtrCreatePartitionsRequest()
	req.TimeoutMillis = 20000
	t := kmsg.NewCreatePartitionsRequestTopic()
	t.Topic, t.Count = "orders", 4
	req.Topics = append(req.Topics, t)
	step("a fourth partition for orders")
	a.do(req)
	a.produce("orders", kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.LeaderAck()))
	a.waitSnapshot(dir)
	a.setConfig(kmsg.ConfigResourceTypeTopic, "orders", "retention.ms", ptr("86400000"))
	a.deleteTopic("gone")
}

// features is the life of two nodes with elections, reassignments, security records and a broker that goes.
func features(a *admin, saslSeed, dir1, dir2, nodeScript string) {
	a.wait("two brokers", func() bool {
		resp, err := kmsg.NewPtrMetadataRequest().RequestWith(a.ctx, a.cl)
		return err == nil && len(resp.Brokers) == 2
	})
	a.createTopic("pairs", 0, [][]int32{{1, 2}, {2, 1}}, "min.insync.replicas", "2")
	a.createTopic("moved", 0, [][]int32{{1}})
	a.createTopic("lone", 0, [][]int32{{1}})
	a.waitISR("pairs", 2)
	a.security(saslSeed)
	a.setConfig(kmsg.ConfigResourceTypeClientMetrics, "telemetry", "interval.ms", ptr("60000"))
	a.setConfig(kmsg.ConfigResourceTypeGroupConfig, "readers", "consumer.session.timeout.ms", ptr("46000"))
	a.produce("pairs")
	// Left to the broker it would be on either node.
	a.createTopic("__transaction_state", 0, [][]int32{{1}}, "cleanup.policy", "compact", "segment.bytes", "104857600")
	a.transaction("pairs")

	a.reassign("moved", []int32{1, 2})
	a.waitISR("moved", 2)
	a.reassign("moved", []int32{2})
	a.waitISR("moved", 1)
	a.waitSnapshot(dir1)

	nodeCommand(nodeScript, "kill", dir2)
	a.waitISR("pairs", 1)
	// A reassignment that can't end while node 2 is away, and is cancelled.
	a.reassign("lone", []int32{2})
	a.reassign("lone", nil)
	a.setConfig(kmsg.ConfigResourceTypeTopic, "pairs", "min.insync.replicas", ptr("1"))
	nodeCommand(nodeScript, "start", dir2)
	a.waitISR("pairs", 2)
	elect := kmsg.NewPtrElectLeadersRequest()
	elect.TimeoutMillis = 20000
	et := kmsg.NewElectLeadersRequestTopic()
	et.Topic, et.Partitions = "pairs", []int32{1}
	elect.Topics = append(elect.Topics, et)
	step("preferred leader for pairs-1")
	a.do(elect)

	update := kmsg.NewPtrUpdateFeaturesRequest()
	update.TimeoutMillis = 20000
	fu := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
	fu.Feature, fu.MaxVersionLevel, fu.UpgradeType, fu.AllowDowngrade = "transaction.version", 1, 2, true
	update.FeatureUpdates = append(update.FeatureUpdates, fu)
	step("transaction.version 1")
	a.do(update)
	a.waitSnapshot(dir1)

	nodeCommand(nodeScript, "stop", dir2)
	a.waitISR("pairs", 1)
	unregister := kmsg.NewPtrUnregisterBrokerRequest()
	unregister.BrokerID = 2
	step("unregister broker 2")
	a.do(unregister)
	a.deleteTopic("lone")
	a.deleteTopic("moved")
}

func (a *admin) reassign(topic string, replicas []int32) {
	req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	req.TimeoutMillis = 20000
	t := kmsg.NewAlterPartitionAssignmentsRequestTopic()
	t.Topic = topic
	p := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
	p.Replicas = replicas
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	step("reassign %s to %v", topic, replicas)
	a.do(req)
}

func (a *admin) transaction(topic string) {
	step("a transaction on %s", topic)
	cl, err := kgo.NewClient(kgo.SeedBrokers(a.seed), kgo.TransactionalID("golden"), kgo.DefaultProduceTopic(topic),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	check(err)
	defer cl.Close()
	for _, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort} {
		check(cl.BeginTransaction())
		check(cl.ProduceSync(a.ctx, kgo.StringRecord("in a transaction")).FirstErr())
		check(cl.EndTransaction(a.ctx, end))
	}
}

// security writes users, ACLs, quotas and delegation tokens, and removes some of each.
func (a *admin) security(saslSeed string) {
	step("users, ACLs, quotas")
	salt := make([]byte, 16)
	_, err := rand.Read(salt)
	check(err)
	password, err := pbkdf2.Key(sha256.New, "secret", salt, 4096, sha256.Size)
	check(err)
	users := kmsg.NewPtrAlterUserSCRAMCredentialsRequest()
	for _, name := range []string{"alice", "bob"} {
		up := kmsg.NewAlterUserSCRAMCredentialsRequestUpsertion()
		up.Name, up.Mechanism, up.Iterations, up.Salt = name, 1, 4096, salt
		up.SaltedPassword = password
		users.Upsertions = append(users.Upsertions, up)
	}
	a.do(users)
	users = kmsg.NewPtrAlterUserSCRAMCredentialsRequest()
	del := kmsg.NewAlterUserSCRAMCredentialsRequestDeletion()
	del.Name, del.Mechanism = "bob", 1
	users.Deletions = append(users.Deletions, del)
	a.do(users)

	acls := kmsg.NewPtrCreateACLsRequest()
	for _, name := range []string{"pairs", "moved"} {
		c := kmsg.NewCreateACLsRequestCreation()
		c.ResourceType, c.ResourceName, c.ResourcePatternType = kmsg.ACLResourceTypeTopic, name, kmsg.ACLResourcePatternTypeLiteral
		c.Principal, c.Host, c.Operation, c.PermissionType = "User:alice", "*", kmsg.ACLOperationRead, kmsg.ACLPermissionTypeAllow
		acls.Creations = append(acls.Creations, c)
	}
	a.do(acls)
	gone := kmsg.NewPtrDeleteACLsRequest()
	f := kmsg.NewDeleteACLsRequestFilter()
	f.ResourceType, f.ResourceName, f.ResourcePatternType = kmsg.ACLResourceTypeTopic, ptr("moved"), kmsg.ACLResourcePatternTypeLiteral
	f.Operation, f.PermissionType = kmsg.ACLOperationAny, kmsg.ACLPermissionTypeAny
	gone.Filters = append(gone.Filters, f)
	a.do(gone)

	a.quota(false, "alice", "")
	a.quota(false, "alice", "app")
	a.quota(true, "alice", "")

	step("delegation tokens")
	sasl := newAdmin(a.ctx, saslSeed, kgo.SASL(scram.Sha256(func(context.Context) (scram.Auth, error) {
		return scram.Auth{User: "alice", Pass: "secret"}, nil
	})))
	for i := range 2 {
		req := kmsg.NewPtrCreateDelegationTokenRequest()
		req.MaxLifetimeMillis = 3600000
		renewer := kmsg.NewCreateDelegationTokenRequestRenewer()
		renewer.PrincipalType, renewer.PrincipalName = "User", "carol"
		req.Renewers = append(req.Renewers, renewer)
		token := sasl.do(req).(*kmsg.CreateDelegationTokenResponse)
		renew := kmsg.NewPtrRenewDelegationTokenRequest()
		renew.HMAC, renew.RenewTimeMillis = token.HMAC, 1800000
		// The token's record may not have reached the broker that renews it yet.
		sasl.wait("the token", func() bool {
			resp, err := renew.RequestWith(sasl.ctx, sasl.cl)
			return err == nil && resp.ErrorCode == 0
		})
		if i == 0 {
			expire := kmsg.NewPtrExpireDelegationTokenRequest()
			expire.HMAC, expire.ExpiryPeriodMillis = token.HMAC, -1
			sasl.do(expire)
		}
	}
}

// quota sets or removes a quota; an empty client is the default one.
func (a *admin) quota(remove bool, user, client string) {
	req := kmsg.NewPtrAlterClientQuotasRequest()
	entry := kmsg.NewAlterClientQuotasRequestEntry()
	e := kmsg.NewAlterClientQuotasRequestEntryEntity()
	e.Type, e.Name = "user", &user
	entry.Entity = append(entry.Entity, e)
	e = kmsg.NewAlterClientQuotasRequestEntryEntity()
	if e.Type = "client-id"; client != "" {
		e.Name = &client
	}
	entry.Entity = append(entry.Entity, e)
	op := kmsg.NewAlterClientQuotasRequestEntryOp()
	op.Key, op.Value, op.Remove = "producer_byte_rate", 1048576, remove
	entry.Ops = append(entry.Ops, op)
	req.Entries = append(req.Entries, entry)
	a.do(req)
}
