#!/usr/bin/env python3
"""Writes the Grafana boards next to this file from the tables in boards.py.

    config/deploy/grafana/generate.py            writes the boards
    config/deploy/grafana/generate.py --check    fails if a board differs from the tables
"""

import json
import pathlib
import sys

sys.dont_write_bytecode = True

from boards import BOARDS, RANGE, VARIABLES

HERE = pathlib.Path(__file__).resolve().parent
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
COLUMNS = 24


def selector(names):
    """Returns the label matchers for these variables of a board."""
    return ", ".join(f'{name}=~"${name}"' for name in names)


def expand(expr):
    """Replaces placeholders such as `@pool` by the matchers of the variables, and `@range` by the range of rates."""
    for name in ("pool", "worker", "policy", "arm"):
        labels = {"arm": ["pool", "policy"]}.get(name, [name])
        expr = expr.replace(f"@{name}", selector(["job", "instance", *labels]))
    return expr.replace("@router", selector(["job", "instance"])).replace("@range", RANGE)


def target(number, expr, legend, instant):
    query = {
        "datasource": DATASOURCE,
        "editorMode": "code",
        "expr": expand(expr),
        "legendFormat": legend,
        "refId": chr(ord("A") + number),
    }
    if instant:
        query.update({"format": "table", "instant": True, "range": False})
    else:
        query["range"] = True
    return query


def field_config(panel):
    defaults = {"unit": panel["unit"]}
    if panel.get("zero"):
        defaults["noValue"] = "0"
    for key in ("min", "max"):
        if key in panel:
            defaults[key] = panel[key]
    if panel["type"] == "timeseries":
        stacked = {"group": "A", "mode": "normal" if panel.get("stack") else "none"}
        defaults["custom"] = {"fillOpacity": 20 if panel.get("stack") else 5, "showPoints": "never", "stacking": stacked}
    if "bad" in panel:
        steps = [{"color": "green", "value": None}, {"color": "red", "value": panel["bad"]}]
        if panel.get("bad_below"):
            steps = [{"color": "red", "value": None}, {"color": "green", "value": panel["bad"]}]
        defaults["color"] = {"mode": "thresholds"}
        defaults["thresholds"] = {"mode": "absolute", "steps": steps}
    return {"defaults": defaults, "overrides": []}


def options(kind):
    if kind == "timeseries":
        return {
            "legend": {"calcs": ["mean", "max", "lastNotNull"], "displayMode": "table", "placement": "bottom"},
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
    if kind == "stat":
        return {"colorMode": "value", "graphMode": "area", "reduceOptions": {"calcs": ["lastNotNull"]}}
    return {"showHeader": True}


def panel_json(number, panel, place):
    kind = panel["type"]
    is_table = kind == "table"
    model = {
        "id": number,
        "type": kind,
        "title": panel["title"],
        "description": panel["do"],
        "datasource": DATASOURCE,
        "gridPos": place,
        "fieldConfig": field_config(panel),
        "options": options(kind),
        "targets": [target(at, expr, legend, is_table) for at, (expr, legend) in enumerate(panel["queries"])],
    }
    if is_table:
        hidden = {name: True for name in ("Time", "__name__", "job", "instance")}
        names = {f"Value #{chr(ord('A') + at)}": legend for at, (_, legend) in enumerate(panel["queries"])}
        names["Value"] = panel["queries"][0][1]
        model["transformations"] = [
            {"id": "merge", "options": {}},
            {"id": "organize", "options": {"excludeByName": hidden, "renameByName": names}},
        ]
    return model


def lay_out(rows):
    """Returns the panels of the rows, placed on the grid from left to right and from top to bottom."""
    found, top = [], 0
    for title, panels in rows:
        found.append({
            "id": len(found) + 1, "type": "row", "title": title, "collapsed": False, "panels": [],
            "datasource": DATASOURCE, "gridPos": {"x": 0, "y": top, "w": COLUMNS, "h": 1},
        })
        top += 1
        left = height = 0
        for panel in panels:
            width, own = panel["width"], 4 if panel["type"] == "stat" else 8
            if left + width > COLUMNS:
                left, top, height = 0, top + height, 0
            found.append(panel_json(len(found) + 1, panel, {"x": left, "y": top, "w": width, "h": own}))
            left, height = left + width, max(height, own)
        top += height
    return found


def variable(name, label, query):
    return {
        "type": "query", "name": name, "label": label, "datasource": DATASOURCE, "definition": query,
        "query": {"query": query, "refId": f"variable-{name}"}, "refresh": 2, "sort": 1, "multi": True,
        "includeAll": True, "allValue": ".*", "current": {"text": ["All"], "value": ["$__all"]},
    }


def annotation(name, colour, expr, title, text, enabled=True):
    return {
        "name": name, "datasource": DATASOURCE, "enable": enabled, "iconColor": colour,
        "expr": expand(expr), "titleFormat": title, "textFormat": text, "step": "60s", "useValueForTime": False,
    }


def board(uid, title, about, names, rows):
    datasource = {
        "type": "datasource", "name": "datasource", "label": "Data source", "query": "prometheus",
        "current": {}, "refresh": 1, "regex": "", "hide": 0,
    }
    return {
        "id": None,
        "uid": uid,
        "title": title,
        "description": about,
        "tags": ["conductor"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "links": [{
            "type": "dashboards", "title": "Conductor", "tags": ["conductor"], "asDropdown": True,
            "includeVars": True, "keepTime": True,
        }],
        "templating": {"list": [datasource, *(variable(name, *VARIABLES[name]) for name in names)]},
        "annotations": {"list": [
            annotation("Configuration", "blue", "changes(conductor_config_generation{@router}[1m]) > 0",
                       "Configuration applied", "{{instance}}"),
            annotation("Refused configuration", "red", "conductor_config_last_reload_successful{@router} == 0",
                       "Configuration refused", "{{instance}}"),
            annotation("Policy versions", "purple",
                       "max by (policy, version) (conductor_policy_active{@router} == 1)"
                       " unless max by (policy, version) (conductor_policy_active{@router} offset 1m == 1)",
                       "Policy {{policy}}", "version {{version}}"),
        ]},
        "panels": lay_out(rows),
    }


def main():
    is_check = "--check" in sys.argv[1:]
    differing = []
    for uid, (title, about, names, rows) in BOARDS.items():
        path = HERE / (uid.removeprefix("conductor-") + ".json")
        text = json.dumps(board(uid, title, about, names, rows), indent=2) + "\n"
        if not is_check:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            differing.append(path.name)
    if differing:
        sys.exit(f"run config/deploy/grafana/generate.py: these differ from boards.py: {', '.join(differing)}")


if __name__ == "__main__":
    main()
