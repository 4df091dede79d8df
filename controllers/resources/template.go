package resources

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kraft-operator/kraft-operator/api/v1alpha1"
)

// InvalidTemplateError is a spec.podTemplate that can't be used: the user's to mend.
type InvalidTemplateError struct{ Problems []string }

func (e *InvalidTemplateError) Error() string {
	return "spec.podTemplate: " + strings.Join(e.Problems, "; ")
}

// userTemplate reads spec.podTemplate. The schema leaves it open, so that the custom resource definition stays small;
// hence a misspelt field is found here.
func userTemplate(raw *runtime.RawExtension) (corev1.PodTemplateSpec, error) {
	var t corev1.PodTemplateSpec
	if raw == nil || len(raw.Raw) == 0 {
		return t, nil
	}
	d := json.NewDecoder(bytes.NewReader(raw.Raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&t); err != nil {
		return t, &InvalidTemplateError{[]string{strings.TrimPrefix(err.Error(), "json: ")}}
	}
	return t, nil
}

// merge lays what members need over what the user wants. Where both set a field to different values it's a conflict,
// not a silent win: the user would wait for an effect that never comes.
type merge struct{ problems []string }

func (m *merge) complain(format string, args ...any) {
	m.problems = append(m.problems, fmt.Sprintf(format, args...))
}

// ours sets a field that is not the user's to choose.
func ours[T comparable](m *merge, path string, field *T, value T) {
	var zero T
	if *field != zero && *field != value {
		m.complain("%s is %v; the operator sets it to %v, leave it out", path, *field, value)
	}
	*field = value
}

// oursPtr is ours for a pointer.
func oursPtr[T comparable](m *merge, path string, field **T, value T) {
	if *field != nil && **field != value {
		m.complain("%s is %v; the operator sets it to %v, leave it out", path, **field, value)
	}
	*field = &value
}

// absent refuses a field that would take the member's identity or the security floor away.
func absent[T comparable](m *merge, path string, field T) {
	var zero T
	if field != zero {
		m.complain("%s is %v; leave it out", path, field)
	}
}

// otherwise is a default: the user's value stands.
func otherwise[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

// template is the Pod template of a pool: everything but what differs by member.
func template(mq *v1alpha1.MetadataQuorum, image, pool, configMap string) (corev1.PodTemplateSpec, error) {
	t, err := userTemplate(mq.Spec.PodTemplate)
	if err != nil {
		return t, err
	}
	m := &merge{}
	m.metadata(&t)
	m.podSpec(mq, &t.Spec, pool, configMap)
	m.container(&t.Spec, image)
	if len(m.problems) > 0 {
		slices.Sort(m.problems)
		return t, &InvalidTemplateError{m.problems}
	}
	return t, nil
}

func (m *merge) metadata(t *corev1.PodTemplateSpec) {
	absent(m, "metadata.name", t.Name)
	absent(m, "metadata.generateName", t.GenerateName)
	absent(m, "metadata.namespace", t.Namespace)
	if len(t.OwnerReferences) > 0 || len(t.Finalizers) > 0 {
		m.complain("metadata may hold labels and annotations only")
	}
	reserved := func(key string) bool {
		return strings.HasPrefix(key, "kraft-operator.io/") || slices.Contains([]string{
			"app.kubernetes.io/name", "app.kubernetes.io/instance", "app.kubernetes.io/component",
			"app.kubernetes.io/part-of", "app.kubernetes.io/managed-by",
		}, key)
	}
	for k := range t.Labels {
		if reserved(k) {
			m.complain("metadata.labels[%s] is the operator's, leave it out", k)
		}
	}
	for k := range t.Annotations {
		if reserved(k) {
			m.complain("metadata.annotations[%s] is the operator's, leave it out", k)
		}
	}
	// Without it the cluster autoscaler takes a Pod with a local claim, or none of a controller it knows, for one that
	// can't be moved, and never removes its node. The budget guards the quorum already.
	t.Annotations = with(map[string]string{"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}, t.Annotations)
}

func (m *merge) podSpec(mq *v1alpha1.MetadataQuorum, s *corev1.PodSpec, pool, configMap string) {
	absent(m, "spec.hostname", s.Hostname)
	absent(m, "spec.nodeName", s.NodeName)
	absent(m, "spec.hostNetwork", s.HostNetwork)
	absent(m, "spec.hostPID", s.HostPID)
	absent(m, "spec.hostIPC", s.HostIPC)
	absent(m, "spec.serviceAccount", s.DeprecatedServiceAccount)
	if s.ActiveDeadlineSeconds != nil {
		m.complain("spec.activeDeadlineSeconds is %d; members have no deadline, leave it out", *s.ActiveDeadlineSeconds)
	}
	ours(m, "spec.subdomain", &s.Subdomain, PeersService(mq.Name))
	ours(m, "spec.serviceAccountName", &s.ServiceAccountName, AccountName(mq.Name))
	ours(m, "spec.restartPolicy", &s.RestartPolicy, corev1.RestartPolicyAlways)
	oursPtr(m, "spec.automountServiceAccountToken", &s.AutomountServiceAccountToken, false)
	otherwise(&s.EnableServiceLinks, false)
	otherwise(&s.TerminationGracePeriodSeconds, 60)
	if *s.TerminationGracePeriodSeconds < 10 {
		m.complain("spec.terminationGracePeriodSeconds is %d; a leader needs at least 10 to hand over", *s.TerminationGracePeriodSeconds)
	}

	otherwise(&s.SecurityContext, corev1.PodSecurityContext{})
	sc := s.SecurityContext
	oursPtr(m, "spec.securityContext.runAsNonRoot", &sc.RunAsNonRoot, true)
	otherwise(&sc.RunAsUser, User)
	otherwise(&sc.RunAsGroup, User)
	otherwise(&sc.FSGroup, User)
	otherwise(&sc.FSGroupChangePolicy, corev1.FSGroupChangeOnRootMismatch)
	otherwise(&sc.SeccompProfile, corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault})
	m.seccomp("spec.securityContext", sc.SeccompProfile)
	if *sc.RunAsUser == 0 {
		m.complain("spec.securityContext.runAsUser is 0; members don't run as root")
	}

	if pool == v1alpha1.PoolVoters {
		// Moving a voter off a node that no longer answers helps nobody: its disk stays there. Ours come first, since the
		// first that fits a taint counts, and the user's may fit all.
		var ours []corev1.Toleration
		for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
			s.Tolerations = slices.DeleteFunc(s.Tolerations, func(t corev1.Toleration) bool { return t.Key == key })
			ours = append(ours, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute})
		}
		s.Tolerations = append(ours, s.Tolerations...)
	}
	if len(s.TopologySpreadConstraints) == 0 && s.Affinity == nil {
		for _, key := range []string{corev1.LabelHostname, corev1.LabelTopologyZone} {
			s.TopologySpreadConstraints = append(s.TopologySpreadConstraints, corev1.TopologySpreadConstraint{
				MaxSkew: 1, TopologyKey: key, WhenUnsatisfiable: corev1.ScheduleAnyway,
				LabelSelector: labelSelector(poolSelector(mq.Name, pool)),
			})
		}
	}

	for _, v := range s.Volumes {
		if v.Name == "data" || v.Name == "config" {
			m.complain("spec.volumes[%s] is the operator's, choose another name", v.Name)
		}
	}
	s.Volumes = append([]corev1.Volume{
		{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{}}},
		{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: configMap}}}},
	}, s.Volumes...)
}

func (m *merge) container(s *corev1.PodSpec, image string) {
	i := slices.IndexFunc(s.Containers, func(c corev1.Container) bool { return c.Name == ContainerName })
	var c corev1.Container
	if i >= 0 {
		c = s.Containers[i]
		s.Containers = slices.Delete(s.Containers, i, i+1)
	}
	path := func(field string) string { return "spec.containers[" + ContainerName + "]." + field }
	c.Name = ContainerName
	if c.Image != "" && c.Image != image {
		m.complain("%s is %s; set spec.image instead", path("image"), c.Image)
	}
	c.Image = image
	if len(c.Command) > 0 || len(c.Args) > 0 {
		m.complain("%s and args are the operator's, leave them out", path("command"))
	}
	c.Command, c.Args = []string{"/quorum"}, []string{"run", "--config", configDir + "/" + configFile}
	absent(m, path("workingDir"), c.WorkingDir)
	if len(c.Ports) > 0 {
		m.complain("%s are the operator's, leave them out", path("ports"))
	}
	c.Ports = []corev1.ContainerPort{
		{Name: "controller", ContainerPort: ControllerPort},
		{Name: "client", ContainerPort: ClientPort},
		{Name: "admin", ContainerPort: AdminPort},
		{Name: "health", ContainerPort: HealthPort},
	}
	for i := range c.Ports {
		c.Ports[i].Protocol = corev1.ProtocolTCP
	}
	for _, e := range c.Env {
		if slices.Contains([]string{envNodeID, envHost, envRack, envObserverOnly}, e.Name) {
			m.complain("%s is the operator's, leave it out", path("env["+e.Name+"]"))
		}
	}
	for _, v := range c.VolumeMounts {
		if within(v.MountPath, dataDir) || within(v.MountPath, configDir) {
			m.complain("%s lies in a directory of the operator's, choose another", path("volumeMounts["+v.MountPath+"]"))
		}
	}
	c.VolumeMounts = append([]corev1.VolumeMount{
		{Name: "data", MountPath: dataDir},
		{Name: "config", MountPath: configDir, ReadOnly: true},
	}, c.VolumeMounts...)
	if len(c.Resources.Requests) == 0 && len(c.Resources.Limits) == 0 {
		c.Resources = corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("256Mi")},
			Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("512Mi")},
		}
	}
	c.TerminationMessagePath = "/dev/termination-log"
	c.TerminationMessagePolicy = corev1.TerminationMessageReadFile
	if c.LivenessProbe != nil || c.ReadinessProbe != nil || c.StartupProbe != nil {
		m.complain("%s and its kin are the operator's, leave them out", path("readinessProbe"))
	}
	// Alive is the process alone; ready is a member that knows its leader and the high watermark. A quorum that is
	// lost must not have its members restarted.
	c.LivenessProbe = probe("/livez", 10, 6)
	c.ReadinessProbe = probe("/readyz", 2, 2)
	m.containerSecurity(&c, path)
	s.Containers = append([]corev1.Container{c}, s.Containers...)
}

func (m *merge) containerSecurity(c *corev1.Container, path func(string) string) {
	otherwise(&c.SecurityContext, corev1.SecurityContext{})
	sc := c.SecurityContext
	oursPtr(m, path("securityContext.allowPrivilegeEscalation"), &sc.AllowPrivilegeEscalation, false)
	oursPtr(m, path("securityContext.readOnlyRootFilesystem"), &sc.ReadOnlyRootFilesystem, true)
	if sc.Privileged != nil && *sc.Privileged {
		m.complain("%s is true; leave it out", path("securityContext.privileged"))
	}
	if sc.RunAsNonRoot != nil && !*sc.RunAsNonRoot || sc.RunAsUser != nil && *sc.RunAsUser == 0 {
		m.complain("%s asks for root; members don't run as root", path("securityContext"))
	}
	m.seccomp(path("securityContext"), sc.SeccompProfile)
	if sc.ProcMount != nil && *sc.ProcMount != corev1.DefaultProcMount {
		m.complain("%s is %s; leave it out", path("securityContext.procMount"), *sc.ProcMount)
	}
	otherwise(&sc.Capabilities, corev1.Capabilities{})
	if len(sc.Capabilities.Add) > 0 {
		m.complain("%s is %v; members need no capability, leave it out", path("securityContext.capabilities.add"), sc.Capabilities.Add)
	}
	sc.Capabilities.Drop = []corev1.Capability{"ALL"}
}

// seccomp: the runtime's profile or one of the node's, as Pod Security's restricted level asks.
func (m *merge) seccomp(path string, p *corev1.SeccompProfile) {
	if p != nil && p.Type == corev1.SeccompProfileTypeUnconfined {
		m.complain("%s.seccompProfile.type is %s; leave it out, or name a profile of the node", path, p.Type)
	}
}

func probe(path string, period, failures int32) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:     corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromString("health"), Scheme: corev1.URISchemeHTTP}},
		PeriodSeconds:    period,
		FailureThreshold: failures,
		TimeoutSeconds:   2,
	}
}

// within reports whether two mount paths overlap.
func within(a, b string) bool {
	a, b = strings.TrimRight(a, "/")+"/", b+"/"
	return strings.HasPrefix(a, b) || strings.HasPrefix(b, a)
}
