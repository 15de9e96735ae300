"""prometheus_operator.py KUSTOMIZATION OUTPUT [POD…]: writes the configuration of a Prometheus that
loads a kustomization, and prints its dashboard and the rules of its alerts as JSON.

POD is NAMESPACE/NAME/COMPONENT/CONTAINER/IP[/PORT]: a container as CDI makes it. A pod that
declares a port calls it `metrics`, and has the label for Prometheus. Debian's Prometheus cannot ask
Kubernetes for pods, so it finds them in a file, with the same labels.
"""

import json
import re
import sys
from pathlib import Path

import yaml

META = "__meta_kubernetes_"
folder, output, pods = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
manifests = [manifest for name in kustomization["resources"] for manifest in yaml.safe_load_all((folder / name).read_text())]


def discovered(namespace, name, component, container, ip, port=None):
    """Returns the target and the labels that Prometheus gives to a container of a pod."""
    labels = {"cdi.kubevirt.io": component, **({"prometheus.cdi.kubevirt.io": "true"} if port else {})}
    meta = {"namespace": namespace, "pod_name": name, "pod_ip": ip, "pod_phase": "Running", "pod_container_name": container}
    meta |= {"pod_container_port_name": "metrics", "pod_container_port_number": port} if port else {}
    meta |= {f"pod_label_{sanitized(label)}": value for label, value in labels.items()}
    meta |= {f"pod_labelpresent_{sanitized(label)}": "true" for label in labels}
    return {"targets": [f"{ip}:{port}" if port else ip], "labels": {META + name: value for name, value in meta.items()}}


def sanitized(label):
    return re.sub(r"\W", "_", label)


def keep(pattern, *labels):
    return {"action": "keep", "source_labels": [META + label for label in labels], "regex": str(pattern)}


def snake_case(name):
    return re.sub("[A-Z]", lambda letter: "_" + letter[0].lower(), name)


def scrape_configuration(monitor):
    """Does what `generatePodMonitorConfig` of the operator does, for the fields that we use. Prometheus refuses others."""
    spec, name = monitor["spec"], f"{kustomization['namespace']}/{monitor['metadata']['name']}"
    [endpoint] = spec["podMetricsEndpoints"]
    rules = [] if spec.get("namespaceSelector", {}).get("any") else [keep(kustomization["namespace"], "namespace")]
    selected = {label: [value] for label, value in spec["selector"].get("matchLabels", {}).items()}
    for expression in spec["selector"].get("matchExpressions", []):
        assert expression["operator"] == "In", expression
        selected[expression["key"]] = expression["values"]
    for label, values in selected.items():
        rules.append(keep(f"({'|'.join(values)});true", f"pod_label_{sanitized(label)}", f"pod_labelpresent_{sanitized(label)}"))
    for field, label in {"port": "name", "portNumber": "number"}.items():
        if field in endpoint:
            rules.append(keep(endpoint.pop(field), f"pod_container_port_{label}"))
    for source, target in {"namespace": "namespace", "pod_container_name": "container", "pod_name": "pod"}.items():
        rules.append({"source_labels": [META + source], "target_label": target})
    for rule in endpoint.pop("relabelings", []):
        rules.append({snake_case(field): value for field, value in rule.items()})
    # Stands in for the network of a cluster.
    rules.append({"action": "keep", "source_labels": ["__address__"], "regex": f".*:({'|'.join(map(str, admitted))})"})
    tls = {snake_case(field): value for field, value in endpoint.pop("tlsConfig", {}).items()}
    found = {"job_name": f"podMonitor/{name}/0", "file_sd_configs": [{"files": [str(output / "pods.json")]}], "relabel_configs": rules}
    path = {"metrics_path": endpoint.pop("path")} if "path" in endpoint else {}
    return {**found, **path, "tls_config": tls, **endpoint}


# CDI's own NetworkPolicy for the proxy admits 8443.
policies = [manifest["spec"] for manifest in manifests if manifest["kind"] == "NetworkPolicy"]
admitted = {8443, *(port["port"] for policy in policies for rule in policy["ingress"] for port in rule["ports"])}
(output / "pods.json").write_text(json.dumps([discovered(*pod.split("/")) for pod in pods]))
jobs = [scrape_configuration(manifest) for manifest in manifests if manifest["kind"] == "PodMonitor"]
[groups] = [manifest["spec"] for manifest in manifests if manifest["kind"] == "PrometheusRule"]
(output / "rules.json").write_text(json.dumps(groups))
# JSON is valid YAML.
configuration = {"global": {"scrape_interval": "1s"}, "rule_files": ["rules.json"], "scrape_configs": jobs}
(output / "prometheus.yml").write_text(json.dumps(configuration))
[generator] = kustomization["configMapGenerator"]
dashboard = json.loads((folder / generator["files"][0]).read_text())
print(json.dumps({"dashboard": dashboard, "rules": [rule for group in groups["groups"] for rule in group["rules"]]}))
