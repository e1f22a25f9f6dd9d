"""What Prometheus and Grafana need to watch pdmuxd: rules, alerts, a dashboard, their configurations."""
