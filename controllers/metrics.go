package controllers

import (
	"github.com/prometheus/client_golang/prometheus"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kraft-operator/kraft-operator/api/v1alpha1"
)

// The operator's own metrics are the reported status as numbers: what an alert
// says and what kubectl shows never differ. The members serve their own.
var (
	quorumLabels = []string{"namespace", "name"}

	conditionGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "kraft_operator_quorum_condition", Help: "Condition of a MetadataQuorum: 1 if its status is True.",
	}, append(quorumLabels, "type"))
	leaderGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "kraft_operator_quorum_leader", Help: "Node id of the leader, -1 if none is known.",
	}, quorumLabels)
	epochGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "kraft_operator_quorum_epoch", Help: "Epoch of the leader.",
	}, quorumLabels)
	contributingGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "kraft_operator_quorum_contributing_voters", Help: "Voters that are caught up in the leader's epoch.",
	}, quorumLabels)
	writeGapGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "kraft_operator_quorum_last_handoff_write_gap_seconds", Help: "How long no append was answered during the last transfer of leadership.",
	}, quorumLabels)
)

func init() {
	metrics.Registry.MustRegister(conditionGauge, leaderGauge, epochGauge, contributingGauge, writeGapGauge)
}

func observeMetrics(mq *v1alpha1.MetadataQuorum, s *v1alpha1.MetadataQuorumStatus) {
	for _, t := range []string{
		v1alpha1.ConditionReady, v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled,
		v1alpha1.ConditionQuorumAvailable, v1alpha1.ConditionSafeToRestart, v1alpha1.ConditionPaused,
	} {
		value := 0.0
		if meta.IsStatusConditionTrue(s.Conditions, t) {
			value = 1
		}
		conditionGauge.WithLabelValues(mq.Namespace, mq.Name, t).Set(value)
	}
	leader := -1.0
	if s.Leader != nil {
		leader = float64(s.Leader.NodeID)
		epochGauge.WithLabelValues(mq.Namespace, mq.Name).Set(float64(s.Leader.Epoch))
	}
	leaderGauge.WithLabelValues(mq.Namespace, mq.Name).Set(leader)
	if s.Quorum != nil {
		contributingGauge.WithLabelValues(mq.Namespace, mq.Name).Set(float64(s.Quorum.Contributing))
	}
	if s.Rollout != nil && s.Rollout.LastHandoff != nil && s.Rollout.LastHandoff.WriteGap != nil {
		writeGapGauge.WithLabelValues(mq.Namespace, mq.Name).Set(s.Rollout.LastHandoff.WriteGap.Seconds())
	}
}

// forgetMetrics drops the series of a resource that is gone.
func forgetMetrics(namespace, name string) {
	of := prometheus.Labels{"namespace": namespace, "name": name}
	for _, g := range []*prometheus.GaugeVec{conditionGauge, leaderGauge, epochGauge, contributingGauge, writeGapGauge} {
		g.DeletePartialMatch(of)
	}
}
