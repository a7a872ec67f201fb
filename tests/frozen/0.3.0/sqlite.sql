BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0011');
CREATE TABLE applied_settings (
	id INTEGER NOT NULL, 
	device_id VARCHAR NOT NULL, 
	setting JSON NOT NULL, 
	level VARCHAR NOT NULL, 
	at DATETIME NOT NULL, 
	study_id VARCHAR NOT NULL, 
	revision BIGINT NOT NULL, 
	CONSTRAINT pk_applied_settings PRIMARY KEY (id)
);
INSERT INTO "applied_settings" VALUES(1,'sim@edge','{"gpu.clock_mhz": 1000, "batch_size": 1}','original','2026-01-01 12:00:00.000000','',0);
INSERT INTO "applied_settings" VALUES(2,'sim@edge','{"gpu.clock_mhz": 1000, "batch_size": 1}','trial','2026-01-01 12:04:00.000000','',0);
INSERT INTO "applied_settings" VALUES(3,'sim@edge','{"gpu.clock_mhz": 600, "batch_size": 1}','hold','2026-01-01 12:32:00.000000','0a1b2c3d',7);
CREATE TABLE audit (
	id INTEGER NOT NULL, 
	at DATETIME NOT NULL, 
	who VARCHAR NOT NULL, 
	role VARCHAR NOT NULL, 
	address VARCHAR NOT NULL, 
	method VARCHAR NOT NULL, 
	path VARCHAR NOT NULL, 
	status BIGINT NOT NULL, 
	CONSTRAINT pk_audit PRIMARY KEY (id)
);
INSERT INTO "audit" VALUES(1,'2026-01-01 12:44:00.000000','ann','operator','10.0.0.7','POST','/v1/studies',201);
CREATE TABLE budget_groups (
	name VARCHAR NOT NULL, 
	revision BIGINT NOT NULL, 
	document JSON NOT NULL, 
	CONSTRAINT pk_budget_groups PRIMARY KEY (name)
);
INSERT INTO "budget_groups" VALUES('rack',1,'{"series": "", "reboot_after_s": 90.0, "measure": true, "reserve": 0.1, "name": "rack", "select": {"rack": ["b*"], "id": ["sim*"]}, "watts": {"name": "by hour", "constant": null, "rows": [{"value": 500.0, "hours": "8-20", "days": ["mon"]}, {"value": 700.0, "hours": "0-24", "days": []}], "time_zone": "UTC", "points": []}, "priorities": {"sim3*": 2}, "declared": false, "events": [{"watts": null, "share": 0.75, "effective_at": "2026-01-01T12:50:00Z", "expires_at": "2026-01-01T13:50:00Z", "who": "utility", "why": "", "id": ""}], "revision": 1}');
INSERT INTO "budget_groups" VALUES('clocks',1,'{"series": "", "reboot_after_s": 90.0, "measure": true, "reserve": 0.2, "name": "clocks", "select": {"rack": ["b*"], "id": ["sim*"]}, "watts": {"name": "by hour", "constant": null, "rows": [{"value": 500.0, "hours": "8-20", "days": ["mon"]}, {"value": 700.0, "hours": "0-24", "days": []}], "time_zone": "UTC", "points": []}, "priorities": {"sim3*": 2}, "declared": true, "events": [{"watts": null, "share": 0.75, "effective_at": "2026-01-01T12:50:00Z", "expires_at": "2026-01-01T13:50:00Z", "who": "utility", "why": "", "id": "e-1"}], "revision": 1}');
CREATE TABLE budget_members (
	device_id VARCHAR NOT NULL, 
	group_name VARCHAR NOT NULL, 
	revision BIGINT NOT NULL, 
	document JSON NOT NULL, 
	CONSTRAINT pk_budget_members PRIMARY KEY (device_id)
);
INSERT INTO "budget_members" VALUES('sim3@edge','rack',1,'{"device": "sim3@edge", "knobs": [{"name": "gpu.power_limit_w", "floor": 100.0, "floor_w": 100.0, "default_w": 350.0, "default": null}], "power": {"floor_w": 100.0, "default_w": 350.0, "reboot_after_s": 90.0, "heard_s": 1.5, "member": false, "acknowledged": {"revision": 0, "steps": []}, "sent": [{"revision": 3, "steps": [{"at_s": 2.0, "cap_w": 120.0, "at_most": {"gpu.power_limit_w": 120.0}}]}]}, "group": "rack", "sent_s": null, "released": false, "admitted": "", "outside": "", "ceilings": [], "exceeded": [], "revision": 1}');
INSERT INTO "budget_members" VALUES('sim5@edge','clocks',1,'{"device": "sim5@edge", "knobs": [{"name": "gpu.clock_mhz", "floor": 600.0, "floor_w": null, "default_w": 400.0, "default": 1410.0}], "power": {"floor_w": 100.0, "default_w": 350.0, "reboot_after_s": 90.0, "heard_s": 1.5, "member": false, "acknowledged": {"revision": 0, "steps": []}, "sent": [{"revision": 3, "steps": [{"at_s": 2.0, "cap_w": 120.0, "at_most": {"gpu.power_limit_w": 120.0}}]}]}, "group": "clocks", "sent_s": null, "released": false, "admitted": "clocks", "outside": "", "ceilings": [{"at_most": {"gpu.clock_mhz": 1000.0}, "watts": 250.5}], "exceeded": [{"at_most": {"gpu.clock_mhz": 1000.0}, "watts": 260.0}], "revision": 1}');
INSERT INTO "budget_members" VALUES('sim4@edge','',1,'{"device": "sim4@edge", "knobs": [{"name": "gpu.power_limit_w", "floor": 100.0, "floor_w": 100.0, "default_w": 350.0, "default": null}], "power": {"floor_w": 100.0, "default_w": 350.0, "reboot_after_s": 90.0, "heard_s": 1.5, "member": false, "acknowledged": {"revision": 0, "steps": []}, "sent": [{"revision": 3, "steps": [{"at_s": 2.0, "cap_w": 120.0, "at_most": {"gpu.power_limit_w": 120.0}}]}]}, "group": "", "sent_s": null, "released": false, "admitted": "", "outside": "clocks", "ceilings": [], "exceeded": [], "revision": 1}');
CREATE TABLE deliveries (
	destination VARCHAR NOT NULL, 
	event BIGINT NOT NULL, 
	attempts BIGINT NOT NULL, 
	next_at DATETIME, 
	why VARCHAR NOT NULL, 
	given_up BIGINT NOT NULL, 
	CONSTRAINT pk_deliveries PRIMARY KEY (destination)
);
INSERT INTO "deliveries" VALUES('slack',2,3,'2026-01-01 13:00:00.000000','503',1);
CREATE TABLE devices (
	id VARCHAR NOT NULL, 
	kind VARCHAR NOT NULL, 
	board VARCHAR NOT NULL, 
	driver VARCHAR NOT NULL, 
	agent VARCHAR NOT NULL, 
	workload VARCHAR NOT NULL, 
	workload_version VARCHAR NOT NULL, 
	seen_at DATETIME NOT NULL, 
	description JSON NOT NULL, unable VARCHAR DEFAULT '' NOT NULL, 
	CONSTRAINT pk_devices PRIMARY KEY (id), 
	CONSTRAINT fk_devices_workload_workload_version FOREIGN KEY(workload, workload_version) REFERENCES workload_versions (workload, version)
);
INSERT INTO "devices" VALUES('sim@edge','simulated','A100','1','agent@edge','inference','1','2026-01-01 12:00:00.000000','{"space": {"knobs": [{"name": "gpu.clock_mhz", "values": [400, 600, 800, 1000], "default": 1000, "part": "device", "cost": {"seconds": 0.0, "restart": false}, "role": "core_clock", "by_choice": false, "condition": null, "breaks": []}, {"name": "batch_size", "values": [1, 2, 4], "default": 1, "part": "workload", "cost": {"seconds": 0.0, "restart": false}, "role": "batch", "by_choice": false, "condition": null, "breaks": []}], "only": []}, "metrics": [{"name": "energy_j", "origin": "simulated", "scope": "board", "quantity": {"unit": "J", "better": "less", "kind": "energy", "over_devices": "sum", "over_windows": "mean", "signed": false}}, {"name": "latency_p99_ms", "origin": "simulated", "scope": "board", "quantity": {"unit": "ms", "better": "less", "kind": "time", "over_devices": "most", "over_windows": "tail", "signed": false}}, {"name": "power_w", "origin": "simulated", "scope": "board", "quantity": {"unit": "W", "better": "less", "kind": "power", "over_devices": "sum", "over_windows": "mean", "signed": false}}, {"name": "throughput_per_s", "origin": "simulated", "scope": "board", "quantity": {"unit": "1/s", "better": "more", "kind": "rate", "over_devices": "least", "over_windows": "mean", "signed": false}}, {"name": "tokens_per_j", "origin": "simulated", "scope": "board", "quantity": {"unit": "1/J", "better": "more", "kind": "other", "over_devices": "most", "over_windows": "mean", "signed": false}}], "signals": [{"name": "requests_in_system", "unit": "1", "askable": true, "followed": false}], "cannot": {"fan_rpm": "it has no fan"}, "versions": {"jouletune": "0.1.0"}, "shared": "", "labels": {}, "observed": false}','');
INSERT INTO "devices" VALUES('sim2@edge','simulated','A100','1','agent@edge','inference','1','2026-01-01 12:00:00.000000','{"space": {"knobs": [{"name": "gpu.clock_mhz", "values": [400, 600, 800, 1000], "default": 1000, "part": "device", "cost": {"seconds": 0.0, "restart": false}, "role": "core_clock", "by_choice": false, "condition": null, "breaks": []}, {"name": "batch_size", "values": [1, 2, 4], "default": 1, "part": "workload", "cost": {"seconds": 0.0, "restart": false}, "role": "batch", "by_choice": false, "condition": null, "breaks": []}], "only": []}, "metrics": [{"name": "energy_j", "origin": "simulated", "scope": "board", "quantity": {"unit": "J", "better": "less", "kind": "energy", "over_devices": "sum", "over_windows": "mean", "signed": false}}, {"name": "latency_p99_ms", "origin": "simulated", "scope": "board", "quantity": {"unit": "ms", "better": "less", "kind": "time", "over_devices": "most", "over_windows": "tail", "signed": false}}, {"name": "power_w", "origin": "simulated", "scope": "board", "quantity": {"unit": "W", "better": "less", "kind": "power", "over_devices": "sum", "over_windows": "mean", "signed": false}}, {"name": "throughput_per_s", "origin": "simulated", "scope": "board", "quantity": {"unit": "1/s", "better": "more", "kind": "rate", "over_devices": "least", "over_windows": "mean", "signed": false}}, {"name": "tokens_per_j", "origin": "simulated", "scope": "board", "quantity": {"unit": "1/J", "better": "more", "kind": "other", "over_devices": "most", "over_windows": "mean", "signed": false}}], "signals": [{"name": "requests_in_system", "unit": "1", "askable": true, "followed": false}], "cannot": {"fan_rpm": "it has no fan"}, "versions": {"jouletune": "0.1.0"}, "shared": "", "labels": {}, "observed": false}','');
INSERT INTO "devices" VALUES('sim3@edge','simulated','A100','1','agent@edge','inference','1','2026-01-01 12:00:00.000000','{"space": {"knobs": [{"name": "gpu.clock_mhz", "values": [400, 600, 800, 1000], "default": 1000, "part": "device", "cost": {"seconds": 0.0, "restart": false}, "role": "core_clock", "by_choice": false, "condition": null, "breaks": []}, {"name": "batch_size", "values": [1, 2, 4], "default": 1, "part": "workload", "cost": {"seconds": 0.0, "restart": false}, "role": "batch", "by_choice": false, "condition": null, "breaks": []}], "only": []}, "metrics": [{"name": "energy_j", "origin": "simulated", "scope": "board", "quantity": {"unit": "J", "better": "less", "kind": "energy", "over_devices": "sum", "over_windows": "mean", "signed": false}}, {"name": "latency_p99_ms", "origin": "simulated", "scope": "board", "quantity": {"unit": "ms", "better": "less", "kind": "time", "over_devices": "most", "over_windows": "tail", "signed": false}}, {"name": "power_w", "origin": "simulated", "scope": "board", "quantity": {"unit": "W", "better": "less", "kind": "power", "over_devices": "sum", "over_windows": "mean", "signed": false}}, {"name": "throughput_per_s", "origin": "simulated", "scope": "board", "quantity": {"unit": "1/s", "better": "more", "kind": "rate", "over_devices": "least", "over_windows": "mean", "signed": false}}, {"name": "tokens_per_j", "origin": "simulated", "scope": "board", "quantity": {"unit": "1/J", "better": "more", "kind": "other", "over_devices": "most", "over_windows": "mean", "signed": false}}], "signals": [{"name": "requests_in_system", "unit": "1", "askable": true, "followed": false}], "cannot": {"fan_rpm": "it has no fan"}, "versions": {"jouletune": "0.1.0"}, "shared": "2 MPS clients", "labels": {"rack": "b1", "pool": "a100"}, "observed": false}','');
INSERT INTO "devices" VALUES('sim4@edge','simulated','A100','1','agent@edge','inference','1','2026-01-01 12:00:00.000000','{"space": {"knobs": [{"name": "gpu.clock_mhz", "values": [400, 600, 800, 1000], "default": 1000, "part": "device", "cost": {"seconds": 0.0, "restart": false}, "role": "core_clock", "by_choice": false, "condition": null, "breaks": []}, {"name": "batch_size", "values": [1, 2, 4], "default": 1, "part": "workload", "cost": {"seconds": 0.0, "restart": false}, "role": "batch", "by_choice": false, "condition": null, "breaks": []}], "only": []}, "metrics": [{"name": "energy_j", "origin": "simulated", "scope": "board", "quantity": {"unit": "J", "better": "less", "kind": "energy", "over_devices": "sum", "over_windows": "mean", "signed": false}}, {"name": "latency_p99_ms", "origin": "simulated", "scope": "board", "quantity": {"unit": "ms", "better": "less", "kind": "time", "over_devices": "most", "over_windows": "tail", "signed": false}}, {"name": "power_w", "origin": "simulated", "scope": "board", "quantity": {"unit": "W", "better": "less", "kind": "power", "over_devices": "sum", "over_windows": "mean", "signed": false}}, {"name": "throughput_per_s", "origin": "simulated", "scope": "board", "quantity": {"unit": "1/s", "better": "more", "kind": "rate", "over_devices": "least", "over_windows": "mean", "signed": false}}, {"name": "tokens_per_j", "origin": "simulated", "scope": "board", "quantity": {"unit": "1/J", "better": "more", "kind": "other", "over_devices": "most", "over_windows": "mean", "signed": false}}], "signals": [{"name": "requests_in_system", "unit": "1", "askable": true, "followed": false}], "cannot": {"fan_rpm": "it has no fan"}, "versions": {"jouletune": "0.1.0"}, "shared": "2 MPS clients", "labels": {"rack": "b1", "pool": "a100"}, "observed": false}','the disk is full');
INSERT INTO "devices" VALUES('watched@edge','simulated','A100','1','agent@edge','inference','1','2026-01-01 12:00:00.000000','{"space": {"knobs": [{"name": "gpu.clock_mhz", "values": [400, 600, 800, 1000], "default": 1000, "part": "device", "cost": {"seconds": 0.0, "restart": false}, "role": "core_clock", "by_choice": false, "condition": null, "breaks": []}, {"name": "batch_size", "values": [1, 2, 4], "default": 1, "part": "workload", "cost": {"seconds": 0.0, "restart": false}, "role": "batch", "by_choice": false, "condition": null, "breaks": []}], "only": []}, "metrics": [{"name": "energy_j", "origin": "simulated", "scope": "board", "quantity": {"unit": "J", "better": "less", "kind": "energy", "over_devices": "sum", "over_windows": "mean", "signed": false}}, {"name": "latency_p99_ms", "origin": "simulated", "scope": "board", "quantity": {"unit": "ms", "better": "less", "kind": "time", "over_devices": "most", "over_windows": "tail", "signed": false}}, {"name": "power_w", "origin": "simulated", "scope": "board", "quantity": {"unit": "W", "better": "less", "kind": "power", "over_devices": "sum", "over_windows": "mean", "signed": false}}, {"name": "throughput_per_s", "origin": "simulated", "scope": "board", "quantity": {"unit": "1/s", "better": "more", "kind": "rate", "over_devices": "least", "over_windows": "mean", "signed": false}}, {"name": "tokens_per_j", "origin": "simulated", "scope": "board", "quantity": {"unit": "1/J", "better": "more", "kind": "other", "over_devices": "most", "over_windows": "mean", "signed": false}}], "signals": [{"name": "requests_in_system", "unit": "1", "askable": true, "followed": false}], "cannot": {"fan_rpm": "it has no fan"}, "versions": {"jouletune": "0.1.0"}, "shared": "", "labels": {}, "observed": true}','');
INSERT INTO "devices" VALUES('sim5@edge','simulated','A100','1','agent@edge','inference','1','2026-01-01 12:00:00.000000','{"space": {"knobs": [{"name": "gpu.clock_mhz", "values": [400, 600, 800, 1000], "default": 1000, "part": "device", "cost": {"seconds": 0.0, "restart": false}, "role": "core_clock", "by_choice": false, "condition": null, "breaks": []}, {"name": "batch_size", "values": [1, 2, 4], "default": 1, "part": "workload", "cost": {"seconds": 0.0, "restart": false}, "role": "batch", "by_choice": false, "condition": null, "breaks": []}], "only": []}, "metrics": [{"name": "energy_j", "origin": "simulated", "scope": "board", "quantity": {"unit": "J", "better": "less", "kind": "energy", "over_devices": "sum", "over_windows": "mean", "signed": false}}, {"name": "latency_p99_ms", "origin": "simulated", "scope": "board", "quantity": {"unit": "ms", "better": "less", "kind": "time", "over_devices": "most", "over_windows": "tail", "signed": false}}, {"name": "power_w", "origin": "simulated", "scope": "board", "quantity": {"unit": "W", "better": "less", "kind": "power", "over_devices": "sum", "over_windows": "mean", "signed": false}}, {"name": "throughput_per_s", "origin": "simulated", "scope": "board", "quantity": {"unit": "1/s", "better": "more", "kind": "rate", "over_devices": "least", "over_windows": "mean", "signed": false}}, {"name": "tokens_per_j", "origin": "simulated", "scope": "board", "quantity": {"unit": "1/J", "better": "more", "kind": "other", "over_devices": "most", "over_windows": "mean", "signed": false}}], "signals": [{"name": "requests_in_system", "unit": "1", "askable": true, "followed": false}], "cannot": {"fan_rpm": "it has no fan"}, "versions": {"jouletune": "0.1.0"}, "shared": "", "labels": {}, "observed": false}','');
CREATE TABLE estimates (
	measurement_id INTEGER NOT NULL, 
	metric VARCHAR NOT NULL, 
	position BIGINT NOT NULL, 
	mean DOUBLE NOT NULL, 
	stderr DOUBLE NOT NULL, 
	n BIGINT NOT NULL, 
	low DOUBLE, 
	high DOUBLE, 
	origin VARCHAR NOT NULL, 
	scope VARCHAR NOT NULL, 
	CONSTRAINT pk_estimates PRIMARY KEY (measurement_id, metric), 
	CONSTRAINT fk_estimates_measurement_id FOREIGN KEY(measurement_id) REFERENCES measurements (id) ON DELETE CASCADE
);
INSERT INTO "estimates" VALUES(1,'energy_j',0,10.0,0.1,10,9.83551463730485231451e+00,1.0164485362695147685e+01,'measured','board');
INSERT INTO "estimates" VALUES(1,'latency_p99_ms',1,100.0,1.0,500,9.83551463730485267013e+01,1.01644853626951473305e+02,'measured','board');
INSERT INTO "estimates" VALUES(1,'power_w',2,500.0,5.0,10,4.91775731865242619281e+02,5.08224268134757380718e+02,'measured','board');
INSERT INTO "estimates" VALUES(1,'throughput_per_s',3,50.0,0.5,10,4.91775731865242633506e+01,5.08224268134757366493e+01,'measured','board');
INSERT INTO "estimates" VALUES(2,'energy_j',0,10.0,0.1,10,9.83551463730485231451e+00,1.0164485362695147685e+01,'measured','board');
INSERT INTO "estimates" VALUES(2,'latency_p99_ms',1,100.0,1.0,500,9.83551463730485267013e+01,1.01644853626951473305e+02,'measured','board');
INSERT INTO "estimates" VALUES(2,'power_w',2,500.0,5.0,10,4.91775731865242619281e+02,5.08224268134757380718e+02,'measured','board');
INSERT INTO "estimates" VALUES(2,'throughput_per_s',3,50.0,0.5,10,4.91775731865242633506e+01,5.08224268134757366493e+01,'measured','board');
INSERT INTO "estimates" VALUES(3,'energy_j',0,10.0,0.1,10,9.83551463730485231451e+00,1.0164485362695147685e+01,'measured','board');
INSERT INTO "estimates" VALUES(3,'latency_p99_ms',1,100.0,1.0,500,9.83551463730485267013e+01,1.01644853626951473305e+02,'measured','board');
INSERT INTO "estimates" VALUES(3,'power_w',2,500.0,5.0,10,4.91775731865242619281e+02,5.08224268134757380718e+02,'measured','board');
INSERT INTO "estimates" VALUES(3,'throughput_per_s',3,50.0,0.5,10,4.91775731865242633506e+01,5.08224268134757366493e+01,'measured','board');
INSERT INTO "estimates" VALUES(4,'energy_j',0,10.1,1.00999999999999992561e-01,10,9.9338697836779,1.02661302163220984344e+01,'measured','board');
INSERT INTO "estimates" VALUES(4,'latency_p99_ms',1,101.0,1.01,500,9.93386978367790192141e+01,1.02661302163220980788e+02,'measured','board');
INSERT INTO "estimates" VALUES(4,'power_w',2,505.0,5.05,10,4.96693489183895053439e+02,513.306510816105,'measured','board');
INSERT INTO "estimates" VALUES(4,'throughput_per_s',3,50.0,0.5,10,4.91775731865242633506e+01,5.08224268134757366493e+01,'measured','board');
INSERT INTO "estimates" VALUES(5,'energy_j',0,10.1,1.00999999999999992561e-01,10,9.9338697836779,1.02661302163220984344e+01,'measured','board');
INSERT INTO "estimates" VALUES(5,'latency_p99_ms',1,101.0,1.01,500,9.93386978367790192141e+01,1.02661302163220980788e+02,'measured','board');
INSERT INTO "estimates" VALUES(5,'power_w',2,505.0,5.05,10,4.96693489183895053439e+02,513.306510816105,'measured','board');
INSERT INTO "estimates" VALUES(5,'throughput_per_s',3,50.0,0.5,10,4.91775731865242633506e+01,5.08224268134757366493e+01,'measured','board');
INSERT INTO "estimates" VALUES(6,'energy_j',0,8.0,0.08,10,7.86841170984388238451e+00,8.13158829015611850365e+00,'measured','board');
INSERT INTO "estimates" VALUES(6,'latency_p99_ms',1,105.0,1.05,500,1.03272903691700960852e+02,1.06727096308299039149e+02,'measured','board');
INSERT INTO "estimates" VALUES(6,'power_w',2,400.0,4.0,10,3.93420585492194106805e+02,4.0657941450780589322e+02,'measured','board');
INSERT INTO "estimates" VALUES(6,'throughput_per_s',3,50.0,0.5,10,4.91775731865242633506e+01,5.08224268134757366493e+01,'measured','board');
INSERT INTO "estimates" VALUES(7,'energy_j',0,8.0,0.08,10,7.86841170984388238451e+00,8.13158829015611850365e+00,'measured','board');
INSERT INTO "estimates" VALUES(7,'latency_p99_ms',1,105.0,1.05,500,1.03272903691700960852e+02,1.06727096308299039149e+02,'measured','board');
INSERT INTO "estimates" VALUES(7,'power_w',2,400.0,4.0,10,3.93420585492194106805e+02,4.0657941450780589322e+02,'measured','board');
INSERT INTO "estimates" VALUES(7,'throughput_per_s',3,50.0,0.5,10,4.91775731865242633506e+01,5.08224268134757366493e+01,'measured','board');
INSERT INTO "estimates" VALUES(8,'energy_j',0,6.0,0.06,10,5.90130878238291156634e+00,6.09869121761708843365e+00,'measured','board');
INSERT INTO "estimates" VALUES(8,'latency_p99_ms',1,110.0,1.1,500,1.08190661010353380785e+02,1.11809338989646619207e+02,'measured','board');
INSERT INTO "estimates" VALUES(8,'power_w',2,300.0,3.0,10,2.95065439119145594294e+02,3.04934560880854405701e+02,'measured','board');
INSERT INTO "estimates" VALUES(8,'throughput_per_s',3,50.0,0.5,10,4.91775731865242633506e+01,5.08224268134757366493e+01,'measured','board');
INSERT INTO "estimates" VALUES(9,'energy_j',0,6.0,0.06,10,5.90130878238291156634e+00,6.09869121761708843365e+00,'measured','board');
INSERT INTO "estimates" VALUES(9,'latency_p99_ms',1,110.0,1.1,500,1.08190661010353380785e+02,1.11809338989646619207e+02,'measured','board');
INSERT INTO "estimates" VALUES(9,'power_w',2,300.0,3.0,10,2.95065439119145594294e+02,3.04934560880854405701e+02,'measured','board');
INSERT INTO "estimates" VALUES(9,'throughput_per_s',3,50.0,0.5,10,4.91775731865242633506e+01,5.08224268134757366493e+01,'measured','board');
INSERT INTO "estimates" VALUES(10,'energy_j',0,5.0,0.05,10,4.91775731865242615725e+00,5.08224268134757384274e+00,'measured','board');
INSERT INTO "estimates" VALUES(10,'latency_p99_ms',1,200.0,2.0,500,1.96710292746097053402e+02,2.0328970725390294661e+02,'measured','board');
INSERT INTO "estimates" VALUES(10,'power_w',2,250.0,2.5,10,2.4588786593262130964e+02,2.54112134067378690359e+02,'measured','board');
INSERT INTO "estimates" VALUES(10,'throughput_per_s',3,50.0,0.5,10,4.91775731865242633506e+01,5.08224268134757366493e+01,'measured','board');
INSERT INTO "estimates" VALUES(11,'energy_j',0,5.0,0.05,10,4.91775731865242615725e+00,5.08224268134757384274e+00,'measured','board');
INSERT INTO "estimates" VALUES(11,'latency_p99_ms',1,200.0,2.0,500,1.96710292746097053402e+02,2.0328970725390294661e+02,'measured','board');
INSERT INTO "estimates" VALUES(11,'power_w',2,250.0,2.5,10,2.4588786593262130964e+02,2.54112134067378690359e+02,'measured','board');
INSERT INTO "estimates" VALUES(11,'throughput_per_s',3,50.0,0.5,10,4.91775731865242633506e+01,5.08224268134757366493e+01,'measured','board');
INSERT INTO "estimates" VALUES(12,'energy_j',0,10.0,0.1,10,9.83551463730485231451e+00,1.0164485362695147685e+01,'measured','board');
INSERT INTO "estimates" VALUES(12,'latency_p99_ms',1,101.5,1.0,40,NULL,NULL,'measured','board');
INSERT INTO "estimates" VALUES(12,'power_w',2,500.0,5.0,10,4.91775731865242619281e+02,5.08224268134757380718e+02,'measured','board');
INSERT INTO "estimates" VALUES(12,'throughput_per_s',3,50.0,0.5,10,4.91775731865242633506e+01,5.08224268134757366493e+01,'measured','board');
INSERT INTO "estimates" VALUES(13,'energy_j',0,10.0,0.1,10,9.83551463730485231451e+00,1.0164485362695147685e+01,'measured','board');
INSERT INTO "estimates" VALUES(13,'latency_p99_ms',1,101.5,1.0,40,NULL,NULL,'measured','board');
INSERT INTO "estimates" VALUES(13,'power_w',2,500.0,5.0,10,4.91775731865242619281e+02,5.08224268134757380718e+02,'measured','board');
INSERT INTO "estimates" VALUES(13,'throughput_per_s',3,50.0,0.5,10,4.91775731865242633506e+01,5.08224268134757366493e+01,'measured','board');
INSERT INTO "estimates" VALUES(14,'energy_j',0,6.05,0.0605,10,5.95048635556943583679e+00,6.14951364443056380792e+00,'measured','board');
INSERT INTO "estimates" VALUES(14,'latency_p99_ms',1,111.0,1.11,500,1.09174212474083859097e+02,1.12825787525916140905e+02,'measured','board');
INSERT INTO "estimates" VALUES(14,'power_w',2,302.5,3.025,10,2.97524317778471811372e+02,3.07475682221528188618e+02,'measured','board');
INSERT INTO "estimates" VALUES(14,'throughput_per_s',3,50.0,0.5,10,4.91775731865242633506e+01,5.08224268134757366493e+01,'measured','board');
INSERT INTO "estimates" VALUES(15,'energy_j',0,6.05,0.0605,10,5.95048635556943583679e+00,6.14951364443056380792e+00,'measured','board');
INSERT INTO "estimates" VALUES(15,'latency_p99_ms',1,111.0,1.11,500,1.09174212474083859097e+02,1.12825787525916140905e+02,'measured','board');
INSERT INTO "estimates" VALUES(15,'power_w',2,302.5,3.025,10,2.97524317778471811372e+02,3.07475682221528188618e+02,'measured','board');
INSERT INTO "estimates" VALUES(15,'throughput_per_s',3,50.0,0.5,10,4.91775731865242633506e+01,5.08224268134757366493e+01,'measured','board');
INSERT INTO "estimates" VALUES(16,'energy_j',0,10.0,0.1,10,9.83551463730485231451e+00,1.0164485362695147685e+01,'measured','board');
INSERT INTO "estimates" VALUES(16,'latency_p99_ms',1,99.0,0.99,500,9.73715949093180483959e+01,1.00628405090681951607e+02,'measured','board');
INSERT INTO "estimates" VALUES(16,'power_w',2,500.0,5.0,10,4.91775731865242619281e+02,5.08224268134757380718e+02,'measured','board');
INSERT INTO "estimates" VALUES(16,'throughput_per_s',3,50.0,0.5,10,4.91775731865242633506e+01,5.08224268134757366493e+01,'measured','board');
INSERT INTO "estimates" VALUES(17,'energy_j',0,10.0,0.1,10,9.83551463730485231451e+00,1.0164485362695147685e+01,'measured','board');
INSERT INTO "estimates" VALUES(17,'latency_p99_ms',1,99.0,0.99,500,9.73715949093180483959e+01,1.00628405090681951607e+02,'measured','board');
INSERT INTO "estimates" VALUES(17,'power_w',2,500.0,5.0,10,4.91775731865242619281e+02,5.08224268134757380718e+02,'measured','board');
INSERT INTO "estimates" VALUES(17,'throughput_per_s',3,50.0,0.5,10,4.91775731865242633506e+01,5.08224268134757366493e+01,'measured','board');
INSERT INTO "estimates" VALUES(18,'energy_j',0,6.0,0.06,10,5.90130878238291156634e+00,6.09869121761708843365e+00,'measured','board');
INSERT INTO "estimates" VALUES(18,'latency_p99_ms',1,109.0,1.09,500,1.0720710954662288827e+02,1.10792890453377111724e+02,'measured','board');
INSERT INTO "estimates" VALUES(18,'power_w',2,300.0,3.0,10,2.95065439119145594294e+02,3.04934560880854405701e+02,'measured','board');
INSERT INTO "estimates" VALUES(18,'throughput_per_s',3,50.0,0.5,10,4.91775731865242633506e+01,5.08224268134757366493e+01,'measured','board');
INSERT INTO "estimates" VALUES(19,'energy_j',0,6.0,0.06,10,5.90130878238291156634e+00,6.09869121761708843365e+00,'measured','board');
INSERT INTO "estimates" VALUES(19,'latency_p99_ms',1,109.0,1.09,500,1.0720710954662288827e+02,1.10792890453377111724e+02,'measured','board');
INSERT INTO "estimates" VALUES(19,'power_w',2,300.0,3.0,10,2.95065439119145594294e+02,3.04934560880854405701e+02,'measured','board');
INSERT INTO "estimates" VALUES(19,'throughput_per_s',3,50.0,0.5,10,4.91775731865242633506e+01,5.08224268134757366493e+01,'measured','board');
INSERT INTO "estimates" VALUES(20,'energy_j',0,10.0,0.1,10,9.83551463730485231451e+00,1.0164485362695147685e+01,'measured','board');
INSERT INTO "estimates" VALUES(20,'latency_p99_ms',1,100.0,1.0,500,9.83551463730485267013e+01,1.01644853626951473305e+02,'measured','board');
INSERT INTO "estimates" VALUES(20,'power_w',2,500.0,5.0,10,4.91775731865242619281e+02,5.08224268134757380718e+02,'measured','board');
INSERT INTO "estimates" VALUES(20,'throughput_per_s',3,50.0,0.5,10,4.91775731865242633506e+01,5.08224268134757366493e+01,'measured','board');
INSERT INTO "estimates" VALUES(21,'energy_j',0,10.0,0.1,10,9.83551463730485231451e+00,1.0164485362695147685e+01,'measured','board');
INSERT INTO "estimates" VALUES(21,'latency_p99_ms',1,100.0,1.0,500,9.83551463730485267013e+01,1.01644853626951473305e+02,'measured','board');
INSERT INTO "estimates" VALUES(21,'power_w',2,500.0,5.0,10,4.91775731865242619281e+02,5.08224268134757380718e+02,'measured','board');
INSERT INTO "estimates" VALUES(21,'throughput_per_s',3,50.0,0.5,10,4.91775731865242633506e+01,5.08224268134757366493e+01,'measured','board');
INSERT INTO "estimates" VALUES(22,'energy_j',0,10.0,0.1,10,9.83551463730485231451e+00,1.0164485362695147685e+01,'measured','board');
INSERT INTO "estimates" VALUES(22,'latency_p99_ms',1,100.0,1.0,500,9.83551463730485267013e+01,1.01644853626951473305e+02,'measured','board');
INSERT INTO "estimates" VALUES(22,'power_w',2,500.0,5.0,10,4.91775731865242619281e+02,5.08224268134757380718e+02,'measured','board');
INSERT INTO "estimates" VALUES(22,'throughput_per_s',3,50.0,0.5,10,4.91775731865242633506e+01,5.08224268134757366493e+01,'measured','board');
INSERT INTO "estimates" VALUES(23,'energy_j',0,8.0,0.08,10,7.86841170984388238451e+00,8.13158829015611850365e+00,'measured','board');
INSERT INTO "estimates" VALUES(23,'latency_p99_ms',1,104.0,1.04,500,1.02289352227970468337e+02,1.05710647772029531666e+02,'measured','board');
INSERT INTO "estimates" VALUES(23,'power_w',2,400.0,4.0,10,3.93420585492194106805e+02,4.0657941450780589322e+02,'measured','board');
INSERT INTO "estimates" VALUES(23,'throughput_per_s',3,50.0,0.5,10,4.91775731865242633506e+01,5.08224268134757366493e+01,'measured','board');
INSERT INTO "estimates" VALUES(24,'energy_j',0,8.0,0.08,10,7.86841170984388238451e+00,8.13158829015611850365e+00,'measured','board');
INSERT INTO "estimates" VALUES(24,'latency_p99_ms',1,104.0,1.04,500,1.02289352227970468337e+02,1.05710647772029531666e+02,'measured','board');
INSERT INTO "estimates" VALUES(24,'power_w',2,400.0,4.0,10,3.93420585492194106805e+02,4.0657941450780589322e+02,'measured','board');
INSERT INTO "estimates" VALUES(24,'throughput_per_s',3,50.0,0.5,10,4.91775731865242633506e+01,5.08224268134757366493e+01,'measured','board');
INSERT INTO "estimates" VALUES(25,'energy_j',0,7.5,0.075,10,7.37663597797864,7.62336402202136,'measured','board');
INSERT INTO "estimates" VALUES(25,'latency_p99_ms',1,103.0,1.03,500,1.01305800764239990025e+02,1.04694199235760009969e+02,'measured','board');
INSERT INTO "estimates" VALUES(25,'power_w',2,375.0,3.75,10,368.831798898932,381.168201101068,'measured','board');
INSERT INTO "estimates" VALUES(25,'throughput_per_s',3,50.0,0.5,10,4.91775731865242633506e+01,5.08224268134757366493e+01,'measured','board');
INSERT INTO "estimates" VALUES(26,'energy_j',0,10.0,0.1,10,9.83551463730485231451e+00,1.0164485362695147685e+01,'measured','board');
INSERT INTO "estimates" VALUES(26,'latency_p99_ms',1,100.0,1.0,500,9.83551463730485267013e+01,1.01644853626951473305e+02,'measured','board');
INSERT INTO "estimates" VALUES(26,'power_w',2,500.0,5.0,10,4.91775731865242619281e+02,5.08224268134757380718e+02,'measured','board');
INSERT INTO "estimates" VALUES(26,'throughput_per_s',3,50.0,0.5,10,4.91775731865242633506e+01,5.08224268134757366493e+01,'measured','board');
CREATE TABLE events (
	id INTEGER NOT NULL, 
	at DATETIME NOT NULL, 
	kind VARCHAR NOT NULL, 
	text VARCHAR NOT NULL, 
	study_id VARCHAR NOT NULL, 
	device_id VARCHAR NOT NULL, 
	CONSTRAINT pk_events PRIMARY KEY (id)
);
INSERT INTO "events" VALUES(1,'2026-01-01 12:00:00.000000','tuner_started','version 0.1.0','','');
INSERT INTO "events" VALUES(2,'2026-01-01 12:30:00.000000','phase','holding: confirmed','0a1b2c3d','sim@edge');
INSERT INTO "events" VALUES(3,'2026-01-01 12:50:00.000000','stop','stop-all by ann – “fans”','','');
CREATE TABLE leases (
	device_id VARCHAR NOT NULL, 
	token BIGINT NOT NULL, 
	nonce VARCHAR NOT NULL, 
	study_id VARCHAR, 
	trial_number BIGINT, 
	attempt BIGINT NOT NULL, 
	agent VARCHAR NOT NULL, 
	expires_at DATETIME NOT NULL, 
	CONSTRAINT pk_leases PRIMARY KEY (device_id), 
	CONSTRAINT fk_leases_study_id_trial_number FOREIGN KEY(study_id, trial_number) REFERENCES trials (study_id, number) ON DELETE SET NULL
);
INSERT INTO "leases" VALUES('sim@edge',11,'abababababababababababababababab',NULL,NULL,1,'agent@edge/start-1','2026-01-01 12:23:00.000000');
INSERT INTO "leases" VALUES('sim2@edge',2,'abababababababababababababababab','9f8e7d6c',2,1,'agent@edge/start-1','2026-01-01 13:00:00.000000');
CREATE TABLE measurements (
	id INTEGER NOT NULL, 
	study_id VARCHAR, 
	trial_number BIGINT, 
	report_id INTEGER, 
	observation_id INTEGER, 
	started_at DATETIME NOT NULL, 
	seconds DOUBLE NOT NULL, 
	overhead_s DOUBLE NOT NULL, 
	completed BIGINT NOT NULL, 
	failed BIGINT NOT NULL, 
	utilisation DOUBLE, 
	context JSON NOT NULL, 
	throttled JSON NOT NULL, 
	foreign_share DOUBLE NOT NULL, 
	sources JSON NOT NULL, 
	CONSTRAINT pk_measurements PRIMARY KEY (id), 
	CONSTRAINT fk_measurements_study_id_trial_number FOREIGN KEY(study_id, trial_number) REFERENCES trials (study_id, number) ON DELETE CASCADE, 
	CONSTRAINT fk_measurements_report_id FOREIGN KEY(report_id) REFERENCES reports (id) ON DELETE CASCADE, 
	CONSTRAINT uq_measurements_report_id UNIQUE (report_id), 
	CONSTRAINT fk_measurements_observation_id FOREIGN KEY(observation_id) REFERENCES observations (id) ON DELETE CASCADE, 
	CONSTRAINT uq_measurements_observation_id UNIQUE (observation_id), 
	CONSTRAINT uq_measurements_study_id_trial_number UNIQUE (study_id, trial_number), 
	CONSTRAINT ck_measurements_trial_named CHECK ((study_id IS NULL) = (trial_number IS NULL)), 
	CONSTRAINT ck_measurements_one_owner CHECK (CASE WHEN trial_number IS NULL THEN 0 ELSE 1 END + CASE WHEN report_id IS NULL THEN 0 ELSE 1 END + CASE WHEN observation_id IS NULL THEN 0 ELSE 1 END = 1)
);
INSERT INTO "measurements" VALUES(1,NULL,NULL,1,NULL,'2026-01-01 12:00:00.000000',10.0,0.0,500,0,NULL,'{"arrival_rate_per_s": 50.0}','[]',0.0,'{}');
INSERT INTO "measurements" VALUES(2,'0a1b2c3d',1,NULL,NULL,'2026-01-01 12:00:00.000000',10.0,0.0,500,0,NULL,'{"arrival_rate_per_s": 50.0}','[]',0.0,'{}');
INSERT INTO "measurements" VALUES(3,NULL,NULL,2,NULL,'2026-01-01 12:00:00.000000',10.0,0.0,500,0,NULL,'{"arrival_rate_per_s": 50.0}','[]',0.0,'{}');
INSERT INTO "measurements" VALUES(4,NULL,NULL,3,NULL,'2026-01-01 12:00:00.000000',10.0,0.0,500,0,NULL,'{"arrival_rate_per_s": 50.0}','[]',0.0,'{}');
INSERT INTO "measurements" VALUES(5,'0a1b2c3d',2,NULL,NULL,'2026-01-01 12:00:00.000000',10.0,0.0,500,0,NULL,'{"arrival_rate_per_s": 50.0}','[]',0.0,'{}');
INSERT INTO "measurements" VALUES(6,NULL,NULL,4,NULL,'2026-01-01 12:00:00.000000',10.0,0.0,500,0,NULL,'{"arrival_rate_per_s": 50.0}','[]',0.0,'{}');
INSERT INTO "measurements" VALUES(7,'0a1b2c3d',3,NULL,NULL,'2026-01-01 12:00:00.000000',10.0,0.0,500,0,NULL,'{"arrival_rate_per_s": 50.0}','[]',0.0,'{}');
INSERT INTO "measurements" VALUES(8,NULL,NULL,5,NULL,'2026-01-01 12:00:00.000000',10.0,0.0,500,0,NULL,'{"arrival_rate_per_s": 50.0}','[]',0.0,'{}');
INSERT INTO "measurements" VALUES(9,'0a1b2c3d',4,NULL,NULL,'2026-01-01 12:00:00.000000',10.0,0.0,500,0,NULL,'{"arrival_rate_per_s": 50.0}','[]',0.0,'{}');
INSERT INTO "measurements" VALUES(10,NULL,NULL,6,NULL,'2026-01-01 12:00:00.000000',1.5,0.0,75,0,NULL,'{"requests_in_system": 4.0}','[]',0.0,'{}');
INSERT INTO "measurements" VALUES(11,'0a1b2c3d',5,NULL,NULL,'2026-01-01 12:00:00.000000',1.5,0.0,75,0,NULL,'{"requests_in_system": 4.0}','[]',0.0,'{}');
INSERT INTO "measurements" VALUES(12,NULL,NULL,10,NULL,'2026-01-01 12:00:00.000000',10.0,2.5,500,0,NULL,'{"arrival_rate_per_s": 50.0}','["sw_power_cap"]',0.03125,'{"energy_j": "the simulated meter"}');
INSERT INTO "measurements" VALUES(13,'0a1b2c3d',9,NULL,NULL,'2026-01-01 12:00:00.000000',10.0,2.5,500,0,NULL,'{"arrival_rate_per_s": 50.0}','["sw_power_cap"]',0.03125,'{"energy_j": "the simulated meter"}');
INSERT INTO "measurements" VALUES(14,NULL,NULL,11,NULL,'2026-01-01 12:00:00.000000',10.0,0.0,500,0,NULL,'{"arrival_rate_per_s": 50.0}','[]',0.0,'{}');
INSERT INTO "measurements" VALUES(15,'0a1b2c3d',10,NULL,NULL,'2026-01-01 12:00:00.000000',10.0,0.0,500,0,NULL,'{"arrival_rate_per_s": 50.0}','[]',0.0,'{}');
INSERT INTO "measurements" VALUES(16,NULL,NULL,12,NULL,'2026-01-01 12:00:00.000000',10.0,0.0,500,0,NULL,'{"arrival_rate_per_s": 50.0}','[]',0.0,'{}');
INSERT INTO "measurements" VALUES(17,'0a1b2c3d',11,NULL,NULL,'2026-01-01 12:00:00.000000',10.0,0.0,500,0,NULL,'{"arrival_rate_per_s": 50.0}','[]',0.0,'{}');
INSERT INTO "measurements" VALUES(18,NULL,NULL,NULL,1,'2026-01-01 12:35:00.000000',10.0,0.0,500,0,NULL,'{"requests_in_system": 2.0}','[]',0.0,'{}');
INSERT INTO "measurements" VALUES(19,NULL,NULL,NULL,2,'2026-01-01 12:36:00.000000',10.0,0.0,500,0,NULL,'{"requests_in_system": 2.0}','[]',0.0,'{}');
INSERT INTO "measurements" VALUES(20,NULL,NULL,13,NULL,'2026-01-01 12:00:00.000000',10.0,0.0,500,0,NULL,'{"arrival_rate_per_s": 50.0}','[]',0.0,'{}');
INSERT INTO "measurements" VALUES(21,'9f8e7d6c',1,NULL,NULL,'2026-01-01 12:00:00.000000',10.0,0.0,500,0,NULL,'{"arrival_rate_per_s": 50.0}','[]',0.0,'{}');
INSERT INTO "measurements" VALUES(22,NULL,NULL,14,NULL,'2026-01-01 12:00:00.000000',10.0,0.0,500,0,NULL,'{"arrival_rate_per_s": 50.0}','[]',0.0,'{}');
INSERT INTO "measurements" VALUES(23,'5c5c5c5c',1,NULL,NULL,'2026-01-01 12:00:00.000000',10.0,0.0,500,0,NULL,'{"arrival_rate_per_s": 50.0}','[]',0.0,'{}');
INSERT INTO "measurements" VALUES(24,'5c5c5c5c',2,NULL,NULL,'2026-01-01 12:00:00.000000',10.0,0.0,500,0,NULL,'{"arrival_rate_per_s": 50.0}','[]',0.0,'{}');
INSERT INTO "measurements" VALUES(25,'5c5c5c5c',3,NULL,NULL,'2026-01-01 12:00:00.000000',10.0,0.0,500,0,NULL,'{"arrival_rate_per_s": 50.0}','[]',0.0,'{}');
INSERT INTO "measurements" VALUES(26,'7e7e7e7e',1,NULL,NULL,'2026-01-01 12:00:00.000000',10.0,0.0,500,0,NULL,'{"arrival_rate_per_s": 50.0}','[]',0.0,'{"one_witness": "energy_j: power is not sampled"}');
CREATE TABLE observations (
	id INTEGER NOT NULL, 
	study_id VARCHAR NOT NULL, 
	device_id VARCHAR NOT NULL, 
	started_at DATETIME NOT NULL, 
	setting JSON NOT NULL, 
	at DATETIME NOT NULL, speaks_s DOUBLE, 
	CONSTRAINT pk_observations PRIMARY KEY (id), 
	CONSTRAINT fk_observations_study_id FOREIGN KEY(study_id) REFERENCES studies (id) ON DELETE CASCADE, 
	CONSTRAINT uq_observations_study_id_device_id_started_at UNIQUE (study_id, device_id, started_at)
);
INSERT INTO "observations" VALUES(1,'0a1b2c3d','sim@edge','2026-01-01 12:35:00.000000','{"gpu.clock_mhz": 600, "batch_size": 1}','2026-01-01 12:35:15.000000',NULL);
INSERT INTO "observations" VALUES(2,'0a1b2c3d','sim@edge','2026-01-01 12:36:00.000000','{"gpu.clock_mhz": 600, "batch_size": 1}','2026-01-01 12:36:15.000000',NULL);
CREATE TABLE observed_windows (
	id INTEGER NOT NULL, 
	device_id VARCHAR NOT NULL, 
	started_at DATETIME NOT NULL, 
	at DATETIME NOT NULL, 
	document JSON NOT NULL, 
	CONSTRAINT pk_observed_windows PRIMARY KEY (id), 
	CONSTRAINT fk_observed_windows_device_id FOREIGN KEY(device_id) REFERENCES devices (id) ON DELETE CASCADE, 
	CONSTRAINT uq_observed_windows_device_id_started_at UNIQUE (device_id, started_at)
);
INSERT INTO "observed_windows" VALUES(1,'watched@edge','2026-01-01 12:49:00.000000','2026-01-01 12:49:15.000000','{"estimates": {"energy_j": {"mean": 6.0, "stderr": 0.06, "n": 10, "low": 5.901308782382912, "high": 6.098691217617088, "origin": "measured", "scope": "board"}, "latency_p99_ms": {"mean": 100.0, "stderr": 1.0, "n": 500, "low": 98.35514637304853, "high": 101.64485362695147, "origin": "measured", "scope": "board"}, "power_w": {"mean": 300.0, "stderr": 3.0, "n": 10, "low": 295.0654391191456, "high": 304.9345608808544, "origin": "measured", "scope": "board"}, "throughput_per_s": {"mean": 50.0, "stderr": 0.5, "n": 10, "low": 49.17757318652426, "high": 50.82242681347574, "origin": "measured", "scope": "board"}}, "started_at": "2026-01-01T12:49:00Z", "seconds": 10.0, "overhead_s": 0.0, "load": {"completed": 500, "failed": 0, "utilisation": null}, "context": {"requests_in_system": 2.0}, "throttled": [], "foreign": 0.0, "sources": {}}');
INSERT INTO "observed_windows" VALUES(2,'watched@edge','2026-01-01 12:48:00.000000','2026-01-01 12:48:15.000000','{"estimates": {"energy_j": {"mean": 6.0, "stderr": 0.06, "n": 10, "low": 5.901308782382912, "high": 6.098691217617088, "origin": "measured", "scope": "board"}, "latency_p99_ms": {"mean": 100.0, "stderr": 1.0, "n": 500, "low": 98.35514637304853, "high": 101.64485362695147, "origin": "measured", "scope": "board"}, "power_w": {"mean": 300.0, "stderr": 3.0, "n": 10, "low": 295.0654391191456, "high": 304.9345608808544, "origin": "measured", "scope": "board"}, "throughput_per_s": {"mean": 50.0, "stderr": 0.5, "n": 10, "low": 49.17757318652426, "high": 50.82242681347574, "origin": "measured", "scope": "board"}}, "started_at": "2026-01-01T12:48:00Z", "seconds": 10.0, "overhead_s": 0.0, "load": {"completed": 500, "failed": 0, "utilisation": null}, "context": {"requests_in_system": 2.0}, "throttled": [], "foreign": 0.0, "sources": {}}');
CREATE TABLE releases (
	device_id VARCHAR NOT NULL, 
	at DATETIME NOT NULL, 
	who VARCHAR NOT NULL, 
	why VARCHAR NOT NULL, 
	restored BOOLEAN NOT NULL, 
	CONSTRAINT pk_releases PRIMARY KEY (device_id)
);
INSERT INTO "releases" VALUES('sim5@edge','2026-01-01 12:51:00.000000','ann','a new fan',1);
CREATE TABLE replicas (
	id VARCHAR NOT NULL, 
	host VARCHAR NOT NULL, 
	version VARCHAR NOT NULL, 
	started_at DATETIME NOT NULL, 
	seen_at DATETIME NOT NULL, 
	leads BOOLEAN NOT NULL, 
	bus_lag_s DOUBLE, 
	agents JSON NOT NULL, 
	token_mark VARCHAR NOT NULL, 
	cpu_s DOUBLE NOT NULL, 
	memory_bytes BIGINT NOT NULL, 
	CONSTRAINT pk_replicas PRIMARY KEY (id)
);
INSERT INTO "replicas" VALUES('replica-1','desk','0.2.0','2026-01-01 12:00:00.000000','2026-01-01 12:54:00.000000',1,0.25,'{"1": 2}','ab12',12.5,400000000);
CREATE TABLE reports (
	id INTEGER NOT NULL, 
	study_id VARCHAR NOT NULL, 
	trial_number BIGINT NOT NULL, 
	device_id VARCHAR NOT NULL, 
	attempt BIGINT NOT NULL, 
	token BIGINT NOT NULL, 
	nonce VARCHAR NOT NULL, 
	state VARCHAR NOT NULL, 
	broke VARCHAR, 
	reason VARCHAR NOT NULL, 
	received_at DATETIME NOT NULL, 
	late BOOLEAN NOT NULL, 
	CONSTRAINT pk_reports PRIMARY KEY (id), 
	CONSTRAINT fk_reports_study_id_trial_number FOREIGN KEY(study_id, trial_number) REFERENCES trials (study_id, number) ON DELETE CASCADE, 
	CONSTRAINT uq_reports_study_id_trial_number_device_id_token_nonce UNIQUE (study_id, trial_number, device_id, token, nonce)
);
INSERT INTO "reports" VALUES(1,'0a1b2c3d',1,'sim@edge',1,1,'abababababababababababababababab','completed',NULL,'','2026-01-01 12:03:00.000000',0);
INSERT INTO "reports" VALUES(2,'0a1b2c3d',1,'sim@edge',1,101,'abababababababababababababababab','completed',NULL,'sent again','2026-01-01 12:03:00.000000',1);
INSERT INTO "reports" VALUES(3,'0a1b2c3d',2,'sim@edge',1,2,'abababababababababababababababab','completed',NULL,'','2026-01-01 12:05:00.000000',0);
INSERT INTO "reports" VALUES(4,'0a1b2c3d',3,'sim@edge',1,3,'abababababababababababababababab','completed',NULL,'','2026-01-01 12:07:00.000000',0);
INSERT INTO "reports" VALUES(5,'0a1b2c3d',4,'sim@edge',1,4,'abababababababababababababababab','completed',NULL,'','2026-01-01 12:09:00.000000',0);
INSERT INTO "reports" VALUES(6,'0a1b2c3d',5,'sim@edge',1,5,'abababababababababababababababab','completed','latency_p99_ms <= 120.0','latency_p99_ms was 200, the limit is <= 120','2026-01-01 12:11:00.000000',0);
INSERT INTO "reports" VALUES(7,'0a1b2c3d',6,'sim@edge',1,6,'abababababababababababababababab','failed',NULL,'no such clock','2026-01-01 12:13:00.000000',0);
INSERT INTO "reports" VALUES(8,'0a1b2c3d',7,'sim@edge',1,7,'abababababababababababababababab','aborted',NULL,'paused by ann','2026-01-01 12:15:00.000000',0);
INSERT INTO "reports" VALUES(9,'0a1b2c3d',8,'sim@edge',2,8,'abababababababababababababababab','contaminated',NULL,'foreign','2026-01-01 12:17:00.000000',0);
INSERT INTO "reports" VALUES(10,'0a1b2c3d',9,'sim@edge',1,9,'abababababababababababababababab','inconclusive',NULL,'40 requests in the longest window','2026-01-01 12:19:00.000000',0);
INSERT INTO "reports" VALUES(11,'0a1b2c3d',10,'sim@edge',1,10,'abababababababababababababababab','completed',NULL,'','2026-01-01 12:21:00.000000',0);
INSERT INTO "reports" VALUES(12,'0a1b2c3d',11,'sim@edge',1,11,'abababababababababababababababab','completed',NULL,'','2026-01-01 12:23:00.000000',0);
INSERT INTO "reports" VALUES(13,'9f8e7d6c',1,'sim2@edge',1,1,'abababababababababababababababab','completed',NULL,'','2026-01-01 12:42:00.000000',0);
INSERT INTO "reports" VALUES(14,'9f8e7d6c',1,'sim2@edge',1,101,'abababababababababababababababab','completed',NULL,'sent again','2026-01-01 12:42:00.000000',1);
CREATE TABLE stop_back (
	device_id VARCHAR NOT NULL, 
	CONSTRAINT pk_stop_back PRIMARY KEY (device_id)
);
INSERT INTO "stop_back" VALUES('sim@edge');
INSERT INTO "stop_back" VALUES('sim5@edge');
CREATE TABLE stops (
	id BIGINT NOT NULL, 
	at DATETIME NOT NULL, 
	who VARCHAR NOT NULL, 
	why VARCHAR NOT NULL, 
	CONSTRAINT pk_stops PRIMARY KEY (id)
);
INSERT INTO "stops" VALUES(1,'2026-01-01 12:50:00.000000','ann','the fans are being cleaned');
CREATE TABLE studies (
	id VARCHAR NOT NULL, 
	workload VARCHAR NOT NULL, 
	phase VARCHAR NOT NULL, 
	revision BIGINT NOT NULL, 
	last_trial BIGINT NOT NULL, 
	created_at DATETIME NOT NULL, 
	CONSTRAINT pk_studies PRIMARY KEY (id)
);
INSERT INTO "studies" VALUES('0a1b2c3d','inference','holding',7,11,'2026-01-01 12:00:00.000000');
INSERT INTO "studies" VALUES('9f8e7d6c','inference','tuning',1,2,'2026-01-01 12:40:00.000000');
INSERT INTO "studies" VALUES('5c5c5c5c','inference','tuning',1,3,'2026-01-01 12:43:00.000000');
INSERT INTO "studies" VALUES('7e7e7e7e','inference','baseline',1,1,'2026-01-01 12:00:00.000000');
CREATE TABLE study_devices (
	study_id VARCHAR NOT NULL, 
	device_id VARCHAR NOT NULL, 
	active BOOLEAN NOT NULL, 
	CONSTRAINT pk_study_devices PRIMARY KEY (study_id, device_id), 
	CONSTRAINT fk_study_devices_study_id FOREIGN KEY(study_id) REFERENCES studies (id) ON DELETE CASCADE
);
INSERT INTO "study_devices" VALUES('0a1b2c3d','sim@edge',1);
INSERT INTO "study_devices" VALUES('9f8e7d6c','sim2@edge',1);
INSERT INTO "study_devices" VALUES('5c5c5c5c','sim3@edge',1);
INSERT INTO "study_devices" VALUES('5c5c5c5c','sim4@edge',1);
INSERT INTO "study_devices" VALUES('7e7e7e7e','sim5@edge',1);
CREATE TABLE study_revisions (
	study_id VARCHAR NOT NULL, 
	revision BIGINT NOT NULL, 
	document JSON NOT NULL, 
	who VARCHAR NOT NULL, 
	why VARCHAR NOT NULL, 
	at DATETIME NOT NULL, 
	CONSTRAINT pk_study_revisions PRIMARY KEY (study_id, revision), 
	CONSTRAINT fk_study_revisions_study_id FOREIGN KEY(study_id) REFERENCES studies (id) ON DELETE CASCADE
);
INSERT INTO "study_revisions" VALUES('0a1b2c3d',1,'{"name": "", "policy": "packrat", "seed": 7, "terms": {"trials": 4, "window_s": 10.0, "max_window_s": 30.0, "valid_for_s": 604800.0, "allow_estimated": false, "allow_restart": true, "safety": "balanced", "mode": "search", "canary": "", "canary_windows": 5, "control_share": 0.0, "control_hours": "0-24", "energy_share": null, "plan_by": "", "transfer": true}, "id": "0a1b2c3d", "devices": ["sim@edge"], "workload": "inference", "space": {"knobs": [{"name": "gpu.clock_mhz", "values": [400, 600, 800, 1000], "default": 1000, "part": "device", "cost": {"seconds": 0.0, "restart": false}, "role": "core_clock", "by_choice": false, "condition": null, "breaks": []}, {"name": "batch_size", "values": [1, 2, 4], "default": 1, "part": "workload", "cost": {"seconds": 0.0, "restart": false}, "role": "batch", "by_choice": false, "condition": null, "breaks": []}], "only": []}, "objective": {"metric": "energy_j", "goal": "minimize"}, "second_objective": null, "quantities": {"tokens_per_j": {"unit": "1/J", "better": "more", "kind": "other", "over_devices": "most", "over_windows": "mean", "signed": false}}, "signals": [{"name": "requests_in_system", "unit": "1", "askable": true, "followed": false}], "constraints": [{"metric": "latency_p99_ms", "op": "<=", "bound": 1.2, "relative": true}, {"metric": "tokens_per_j", "op": ">=", "bound": 0.5, "relative": false}], "exploration": {"windows": [], "time_zone": "UTC", "frozen": "", "max_time_share": 1.0, "max_energy_share": 1.0, "min_saving": 0.0}, "group": "", "transfer": {"plan": {}, "holders": 0}, "phase": "baseline", "paused_from": null, "reason": "", "paused_reason": "", "plan": null, "revision": 1, "since_trial": 1, "phase_since": 1, "created_at": "2026-01-01T12:00:00+00:00"}','ann','created','2026-01-01 12:00:00.000000');
INSERT INTO "study_revisions" VALUES('0a1b2c3d',2,'{"name": "", "policy": "packrat", "seed": 7, "terms": {"trials": 4, "window_s": 10.0, "max_window_s": 30.0, "valid_for_s": 604800.0, "allow_estimated": false, "allow_restart": true, "safety": "balanced", "mode": "search", "canary": "", "canary_windows": 5, "control_share": 0.0, "control_hours": "0-24", "energy_share": null, "plan_by": "", "transfer": true}, "id": "0a1b2c3d", "devices": ["sim@edge"], "workload": "inference", "space": {"knobs": [{"name": "gpu.clock_mhz", "values": [400, 600, 800, 1000], "default": 1000, "part": "device", "cost": {"seconds": 0.0, "restart": false}, "role": "core_clock", "by_choice": false, "condition": null, "breaks": []}, {"name": "batch_size", "values": [1, 2, 4], "default": 1, "part": "workload", "cost": {"seconds": 0.0, "restart": false}, "role": "batch", "by_choice": false, "condition": null, "breaks": []}], "only": []}, "objective": {"metric": "energy_j", "goal": "minimize"}, "second_objective": null, "quantities": {"tokens_per_j": {"unit": "1/J", "better": "more", "kind": "other", "over_devices": "most", "over_windows": "mean", "signed": false}}, "signals": [{"name": "requests_in_system", "unit": "1", "askable": true, "followed": false}], "constraints": [{"metric": "latency_p99_ms", "op": "<=", "bound": 1.2, "relative": true}, {"metric": "tokens_per_j", "op": ">=", "bound": 0.5, "relative": false}], "exploration": {"windows": [], "time_zone": "UTC", "frozen": "", "max_time_share": 1.0, "max_energy_share": 1.0, "min_saving": 0.0}, "group": "", "transfer": {"plan": {}, "holders": 0}, "phase": "tuning", "paused_from": null, "reason": "", "paused_reason": "", "plan": null, "revision": 2, "since_trial": 1, "phase_since": 1, "created_at": "2026-01-01T12:00:00+00:00"}','tuner','baseline known','2026-01-01 12:05:00.000000');
INSERT INTO "study_revisions" VALUES('0a1b2c3d',3,'{"name": "", "policy": "packrat", "seed": 7, "terms": {"trials": 4, "window_s": 10.0, "max_window_s": 30.0, "valid_for_s": 604800.0, "allow_estimated": false, "allow_restart": true, "safety": "balanced", "mode": "search", "canary": "", "canary_windows": 5, "control_share": 0.0, "control_hours": "0-24", "energy_share": null, "plan_by": "", "transfer": true}, "id": "0a1b2c3d", "devices": ["sim@edge"], "workload": "inference", "space": {"knobs": [{"name": "gpu.clock_mhz", "values": [400, 600, 800, 1000], "default": 1000, "part": "device", "cost": {"seconds": 0.0, "restart": false}, "role": "core_clock", "by_choice": false, "condition": null, "breaks": []}, {"name": "batch_size", "values": [1, 2, 4], "default": 1, "part": "workload", "cost": {"seconds": 0.0, "restart": false}, "role": "batch", "by_choice": false, "condition": null, "breaks": []}], "only": []}, "objective": {"metric": "energy_j", "goal": "minimize"}, "second_objective": null, "quantities": {"tokens_per_j": {"unit": "1/J", "better": "more", "kind": "other", "over_devices": "most", "over_windows": "mean", "signed": false}}, "signals": [{"name": "requests_in_system", "unit": "1", "askable": true, "followed": false}], "constraints": [{"metric": "latency_p99_ms", "op": "<=", "bound": 1.2, "relative": true}, {"metric": "tokens_per_j", "op": ">=", "bound": 0.5, "relative": false}], "exploration": {"windows": [], "time_zone": "UTC", "frozen": "", "max_time_share": 1.0, "max_energy_share": 1.0, "min_saving": 0.0}, "group": "", "transfer": {"plan": {}, "holders": 0}, "phase": "paused", "paused_from": "tuning", "reason": "", "paused_reason": "", "plan": null, "revision": 3, "since_trial": 1, "phase_since": 1, "created_at": "2026-01-01T12:00:00+00:00"}','ann','lunch','2026-01-01 12:15:00.000000');
INSERT INTO "study_revisions" VALUES('0a1b2c3d',4,'{"name": "", "policy": "packrat", "seed": 7, "terms": {"trials": 4, "window_s": 10.0, "max_window_s": 30.0, "valid_for_s": 604800.0, "allow_estimated": false, "allow_restart": true, "safety": "balanced", "mode": "search", "canary": "", "canary_windows": 5, "control_share": 0.0, "control_hours": "0-24", "energy_share": null, "plan_by": "", "transfer": true}, "id": "0a1b2c3d", "devices": ["sim@edge"], "workload": "inference", "space": {"knobs": [{"name": "gpu.clock_mhz", "values": [400, 600, 800, 1000], "default": 1000, "part": "device", "cost": {"seconds": 0.0, "restart": false}, "role": "core_clock", "by_choice": false, "condition": null, "breaks": []}, {"name": "batch_size", "values": [1, 2, 4], "default": 1, "part": "workload", "cost": {"seconds": 0.0, "restart": false}, "role": "batch", "by_choice": false, "condition": null, "breaks": []}], "only": []}, "objective": {"metric": "energy_j", "goal": "minimize"}, "second_objective": null, "quantities": {"tokens_per_j": {"unit": "1/J", "better": "more", "kind": "other", "over_devices": "most", "over_windows": "mean", "signed": false}}, "signals": [{"name": "requests_in_system", "unit": "1", "askable": true, "followed": false}], "constraints": [{"metric": "latency_p99_ms", "op": "<=", "bound": 1.2, "relative": true}, {"metric": "tokens_per_j", "op": ">=", "bound": 0.5, "relative": false}], "exploration": {"windows": [], "time_zone": "UTC", "frozen": "", "max_time_share": 1.0, "max_energy_share": 1.0, "min_saving": 0.0}, "group": "", "transfer": {"plan": {}, "holders": 0}, "phase": "tuning", "paused_from": null, "reason": "", "paused_reason": "", "plan": null, "revision": 4, "since_trial": 1, "phase_since": 1, "created_at": "2026-01-01T12:00:00+00:00"}','ann','','2026-01-01 12:16:00.000000');
INSERT INTO "study_revisions" VALUES('0a1b2c3d',5,'{"name": "", "policy": "packrat", "seed": 7, "terms": {"trials": 4, "window_s": 10.0, "max_window_s": 30.0, "valid_for_s": 604800.0, "allow_estimated": false, "allow_restart": true, "safety": "balanced", "mode": "search", "canary": "", "canary_windows": 5, "control_share": 0.0, "control_hours": "0-24", "energy_share": null, "plan_by": "", "transfer": true}, "id": "0a1b2c3d", "devices": ["sim@edge"], "workload": "inference", "space": {"knobs": [{"name": "gpu.clock_mhz", "values": [400, 600, 800, 1000], "default": 1000, "part": "device", "cost": {"seconds": 0.0, "restart": false}, "role": "core_clock", "by_choice": false, "condition": null, "breaks": []}, {"name": "batch_size", "values": [1, 2, 4], "default": 1, "part": "workload", "cost": {"seconds": 0.0, "restart": false}, "role": "batch", "by_choice": false, "condition": null, "breaks": []}], "only": []}, "objective": {"metric": "energy_j", "goal": "minimize"}, "second_objective": null, "quantities": {"tokens_per_j": {"unit": "1/J", "better": "more", "kind": "other", "over_devices": "most", "over_windows": "mean", "signed": false}}, "signals": [{"name": "requests_in_system", "unit": "1", "askable": true, "followed": false}], "constraints": [{"metric": "latency_p99_ms", "op": "<=", "bound": 1.2, "relative": true}], "exploration": {"windows": [], "time_zone": "UTC", "frozen": "", "max_time_share": 1.0, "max_energy_share": 1.0, "min_saving": 0.0}, "group": "", "transfer": {"plan": {}, "holders": 0}, "phase": "tuning", "paused_from": null, "reason": "", "paused_reason": "", "plan": null, "revision": 5, "since_trial": 1, "phase_since": 1, "created_at": "2026-01-01T12:00:00+00:00"}','bob','constraints changed','2026-01-01 12:17:00.000000');
INSERT INTO "study_revisions" VALUES('0a1b2c3d',6,'{"name": "", "policy": "packrat", "seed": 7, "terms": {"trials": 4, "window_s": 10.0, "max_window_s": 30.0, "valid_for_s": 604800.0, "allow_estimated": false, "allow_restart": true, "safety": "balanced", "mode": "search", "canary": "", "canary_windows": 5, "control_share": 0.0, "control_hours": "0-24", "energy_share": null, "plan_by": "", "transfer": true}, "id": "0a1b2c3d", "devices": ["sim@edge"], "workload": "inference", "space": {"knobs": [{"name": "gpu.clock_mhz", "values": [400, 600, 800, 1000], "default": 1000, "part": "device", "cost": {"seconds": 0.0, "restart": false}, "role": "core_clock", "by_choice": false, "condition": null, "breaks": []}, {"name": "batch_size", "values": [1, 2, 4], "default": 1, "part": "workload", "cost": {"seconds": 0.0, "restart": false}, "role": "batch", "by_choice": false, "condition": null, "breaks": []}], "only": []}, "objective": {"metric": "energy_j", "goal": "minimize"}, "second_objective": null, "quantities": {"tokens_per_j": {"unit": "1/J", "better": "more", "kind": "other", "over_devices": "most", "over_windows": "mean", "signed": false}}, "signals": [{"name": "requests_in_system", "unit": "1", "askable": true, "followed": false}], "constraints": [{"metric": "latency_p99_ms", "op": "<=", "bound": 1.2, "relative": true}], "exploration": {"windows": [], "time_zone": "UTC", "frozen": "", "max_time_share": 1.0, "max_energy_share": 1.0, "min_saving": 0.0}, "group": "", "transfer": {"plan": {}, "holders": 0}, "phase": "confirming", "paused_from": null, "reason": "", "paused_reason": "", "plan": {"rows": [{"below": 1.5, "setting": {"gpu.clock_mhz": 1000, "batch_size": 1}, "gain": 1.0, "at": null}, {"below": 3.0, "setting": {"gpu.clock_mhz": 600, "batch_size": 1}, "gain": 0.25, "at": 2.0}, {"below": null, "setting": {"gpu.clock_mhz": 800, "batch_size": 4}, "gain": 0.125, "at": 4.0}], "by": "requests_in_system", "hysteresis": 0.2, "eager": false}, "revision": 6, "since_trial": 1, "phase_since": 10, "created_at": "2026-01-01T12:00:00+00:00"}','tuner','three loads were looked at','2026-01-01 12:20:00.000000');
INSERT INTO "study_revisions" VALUES('0a1b2c3d',7,'{"name": "", "policy": "packrat", "seed": 7, "terms": {"trials": 4, "window_s": 10.0, "max_window_s": 30.0, "valid_for_s": 604800.0, "allow_estimated": false, "allow_restart": true, "safety": "balanced", "mode": "search", "canary": "", "canary_windows": 5, "control_share": 0.0, "control_hours": "0-24", "energy_share": null, "plan_by": "", "transfer": true}, "id": "0a1b2c3d", "devices": ["sim@edge"], "workload": "inference", "space": {"knobs": [{"name": "gpu.clock_mhz", "values": [400, 600, 800, 1000], "default": 1000, "part": "device", "cost": {"seconds": 0.0, "restart": false}, "role": "core_clock", "by_choice": false, "condition": null, "breaks": []}, {"name": "batch_size", "values": [1, 2, 4], "default": 1, "part": "workload", "cost": {"seconds": 0.0, "restart": false}, "role": "batch", "by_choice": false, "condition": null, "breaks": []}], "only": []}, "objective": {"metric": "energy_j", "goal": "minimize"}, "second_objective": null, "quantities": {"tokens_per_j": {"unit": "1/J", "better": "more", "kind": "other", "over_devices": "most", "over_windows": "mean", "signed": false}}, "signals": [{"name": "requests_in_system", "unit": "1", "askable": true, "followed": false}], "constraints": [{"metric": "latency_p99_ms", "op": "<=", "bound": 1.2, "relative": true}], "exploration": {"windows": [], "time_zone": "UTC", "frozen": "", "max_time_share": 1.0, "max_energy_share": 1.0, "min_saving": 0.0}, "group": "", "transfer": {"plan": {}, "holders": 0}, "phase": "holding", "paused_from": null, "reason": "", "paused_reason": "", "plan": {"rows": [{"below": 1.5, "setting": {"gpu.clock_mhz": 1000, "batch_size": 1}, "gain": 1.0, "at": null}, {"below": 3.0, "setting": {"gpu.clock_mhz": 600, "batch_size": 1}, "gain": 0.25, "at": 2.0}, {"below": null, "setting": {"gpu.clock_mhz": 800, "batch_size": 4}, "gain": 0.125, "at": 4.0}], "by": "requests_in_system", "hysteresis": 0.2, "eager": false}, "revision": 7, "since_trial": 1, "phase_since": 12, "created_at": "2026-01-01T12:00:00+00:00"}','tuner','confirmed','2026-01-01 12:30:00.000000');
INSERT INTO "study_revisions" VALUES('9f8e7d6c',1,'{"name": "", "policy": "scripted", "seed": 0, "terms": {"trials": 6, "window_s": 10.0, "max_window_s": 30.0, "valid_for_s": 604800.0, "allow_estimated": false, "allow_restart": true, "safety": "balanced", "mode": "continuous", "canary": "", "canary_windows": 5, "control_share": 0.0, "control_hours": "0-24", "energy_share": null, "plan_by": "", "transfer": true}, "id": "9f8e7d6c", "devices": ["sim2@edge"], "workload": "inference", "space": {"knobs": [{"name": "gpu.clock_mhz", "values": [400, 600, 800, 1000], "default": 1000, "part": "device", "cost": {"seconds": 0.0, "restart": false}, "role": "core_clock", "by_choice": false, "condition": null, "breaks": []}, {"name": "batch_size", "values": [1, 2, 4], "default": 1, "part": "workload", "cost": {"seconds": 0.0, "restart": false}, "role": "batch", "by_choice": false, "condition": null, "breaks": []}], "only": []}, "objective": {"metric": "energy_j", "goal": "minimize"}, "second_objective": null, "quantities": {}, "signals": [], "constraints": [{"metric": "latency_p99_ms", "op": "<=", "bound": 120.0, "relative": false}], "exploration": {"windows": [], "time_zone": "UTC", "frozen": "", "max_time_share": 1.0, "max_energy_share": 1.0, "min_saving": 0.0}, "group": "", "transfer": {"plan": {}, "holders": 0}, "phase": "tuning", "paused_from": null, "reason": "", "paused_reason": "", "plan": null, "revision": 1, "since_trial": 1, "phase_since": 1, "created_at": "2026-01-01T12:40:00+00:00"}','bob','','2026-01-01 12:40:00.000000');
INSERT INTO "study_revisions" VALUES('5c5c5c5c',1,'{"name": "", "policy": "scripted", "seed": 0, "terms": {"trials": 6, "window_s": 10.0, "max_window_s": 30.0, "valid_for_s": 604800.0, "allow_estimated": false, "allow_restart": true, "safety": "advise", "mode": "search", "canary": "sim3@edge", "canary_windows": 5, "control_share": 0.02, "control_hours": "22-6", "energy_share": 0.5, "plan_by": "requests_in_system", "transfer": true}, "id": "5c5c5c5c", "devices": ["sim3@edge", "sim4@edge"], "workload": "inference", "space": {"knobs": [{"name": "gpu.clock_mhz", "values": [400, 600, 800, 1000], "default": 1000, "part": "device", "cost": {"seconds": 0.0, "restart": false}, "role": "core_clock", "by_choice": false, "condition": null, "breaks": []}, {"name": "batch_size", "values": [1, 2, 4], "default": 1, "part": "workload", "cost": {"seconds": 0.0, "restart": false}, "role": "batch", "by_choice": false, "condition": null, "breaks": []}], "only": []}, "objective": {"metric": "energy_j", "goal": "minimize"}, "second_objective": {"metric": "latency_p99_ms", "goal": "minimize"}, "quantities": {}, "signals": [{"name": "requests_in_system", "unit": "1", "askable": true, "followed": false}], "constraints": [{"metric": "latency_p99_ms", "op": "<=", "bound": 1.2, "relative": true}], "exploration": {"windows": [{"cron": "0 22 * * *", "hours": 8.0}], "time_zone": "Europe/Zurich", "frozen": "release day", "max_time_share": 0.5, "max_energy_share": 0.25, "min_saving": 0.02}, "group": "web", "transfer": {"plan": {}, "holders": 0}, "phase": "tuning", "paused_from": null, "reason": "", "paused_reason": "", "plan": null, "revision": 1, "since_trial": 1, "phase_since": 1, "created_at": "2026-01-01T12:43:00+00:00"}','ann','declared by fleet.toml','2026-01-01 12:43:00.000000');
INSERT INTO "study_revisions" VALUES('7e7e7e7e',1,'{"name": "the night shift", "policy": "scripted", "seed": 0, "terms": {"trials": 4, "window_s": 10.0, "max_window_s": 30.0, "valid_for_s": 604800.0, "allow_estimated": false, "allow_restart": true, "safety": "balanced", "mode": "search", "canary": "", "canary_windows": 5, "control_share": 0.0, "control_hours": "0-24", "energy_share": null, "plan_by": "", "transfer": true}, "id": "7e7e7e7e", "devices": ["sim5@edge"], "workload": "inference", "space": {"knobs": [{"name": "gpu.clock_mhz", "values": [400, 600, 800, 1000], "default": 1000, "part": "device", "cost": {"seconds": 0.0, "restart": false}, "role": "core_clock", "by_choice": false, "condition": null, "breaks": []}, {"name": "batch_size", "values": [1, 2, 4], "default": 1, "part": "workload", "cost": {"seconds": 0.0, "restart": false}, "role": "batch", "by_choice": false, "condition": null, "breaks": []}], "only": []}, "objective": {"metric": "energy_j", "goal": "minimize"}, "second_objective": null, "quantities": {}, "signals": [], "constraints": [], "exploration": {"windows": [], "time_zone": "UTC", "frozen": "", "max_time_share": 1.0, "max_energy_share": 1.0, "min_saving": 0.0}, "group": "", "transfer": {"plan": {}, "holders": 0}, "phase": "baseline", "paused_from": null, "reason": "", "paused_reason": "", "plan": null, "revision": 1, "since_trial": 1, "phase_since": 1, "created_at": "2026-01-01T12:00:00+00:00"}','ann','','2026-01-01 12:00:00.000000');
CREATE TABLE tokens (
	name VARCHAR NOT NULL, 
	role VARCHAR NOT NULL, 
	digest VARCHAR NOT NULL, 
	created_at DATETIME NOT NULL, 
	expires_at DATETIME, 
	used_at DATETIME, 
	revoked_at DATETIME, 
	CONSTRAINT pk_tokens PRIMARY KEY (name), 
	CONSTRAINT uq_tokens_digest UNIQUE (digest)
);
INSERT INTO "tokens" VALUES('ann','operator','acdc3beb3c6db11fa6c9448de2bac2f1d216de2c65cab90cfcce3fa014097c3d','2026-01-01 12:00:00.000000',NULL,NULL,NULL);
INSERT INTO "tokens" VALUES('bob','operator','e1fc7832d069d75663ffb753cfa7192b8938879efc81576042bbebdb8d73ffe6','2026-01-01 12:00:00.000000',NULL,NULL,'2026-01-01 12:45:00.000000');
INSERT INTO "tokens" VALUES('enrol-1','enrol','f839161355091fcd9e33f571e0b11c60217a5009f9973e769c13d7858db162cc','2026-01-01 12:00:00.000000','2026-01-02 12:00:00.000000','2026-01-01 12:00:00.000000',NULL);
INSERT INTO "tokens" VALUES('agent@edge','agent','d155d89b6fc6fff906b27e4b4db8faaeaf03bea0270839b2426f9db7fa8fecfc','2026-01-01 12:00:00.000000',NULL,NULL,NULL);
INSERT INTO "tokens" VALUES('enrol-2','enrol','857e3d6285b9b9d7811727c04ba35116c0193ec7c23514b47192a3fe8ea7c7c2','2026-01-01 12:00:00.000000','2026-01-02 12:00:00.000000',NULL,NULL);
CREATE TABLE trial_states (
	id INTEGER NOT NULL, 
	study_id VARCHAR NOT NULL, 
	trial_number BIGINT NOT NULL, 
	state VARCHAR NOT NULL, 
	attempt BIGINT NOT NULL, 
	at DATETIME NOT NULL, 
	CONSTRAINT pk_trial_states PRIMARY KEY (id), 
	CONSTRAINT fk_trial_states_study_id_trial_number FOREIGN KEY(study_id, trial_number) REFERENCES trials (study_id, number) ON DELETE CASCADE
);
INSERT INTO "trial_states" VALUES(1,'0a1b2c3d',1,'running',1,'2026-01-01 12:02:00.000000');
INSERT INTO "trial_states" VALUES(2,'0a1b2c3d',1,'completed',1,'2026-01-01 12:03:00.000000');
INSERT INTO "trial_states" VALUES(3,'0a1b2c3d',2,'running',1,'2026-01-01 12:04:00.000000');
INSERT INTO "trial_states" VALUES(4,'0a1b2c3d',2,'completed',1,'2026-01-01 12:05:00.000000');
INSERT INTO "trial_states" VALUES(5,'0a1b2c3d',3,'running',1,'2026-01-01 12:06:00.000000');
INSERT INTO "trial_states" VALUES(6,'0a1b2c3d',3,'completed',1,'2026-01-01 12:07:00.000000');
INSERT INTO "trial_states" VALUES(7,'0a1b2c3d',4,'running',1,'2026-01-01 12:08:00.000000');
INSERT INTO "trial_states" VALUES(8,'0a1b2c3d',4,'completed',1,'2026-01-01 12:09:00.000000');
INSERT INTO "trial_states" VALUES(9,'0a1b2c3d',5,'running',1,'2026-01-01 12:10:00.000000');
INSERT INTO "trial_states" VALUES(10,'0a1b2c3d',5,'completed',1,'2026-01-01 12:11:00.000000');
INSERT INTO "trial_states" VALUES(11,'0a1b2c3d',6,'running',1,'2026-01-01 12:12:00.000000');
INSERT INTO "trial_states" VALUES(12,'0a1b2c3d',6,'failed',1,'2026-01-01 12:13:00.000000');
INSERT INTO "trial_states" VALUES(13,'0a1b2c3d',7,'running',1,'2026-01-01 12:14:00.000000');
INSERT INTO "trial_states" VALUES(14,'0a1b2c3d',7,'aborted',1,'2026-01-01 12:15:00.000000');
INSERT INTO "trial_states" VALUES(15,'0a1b2c3d',8,'running',1,'2026-01-01 12:16:00.000000');
INSERT INTO "trial_states" VALUES(16,'0a1b2c3d',8,'running',2,'2026-01-01 12:16:30.000000');
INSERT INTO "trial_states" VALUES(17,'0a1b2c3d',8,'contaminated',2,'2026-01-01 12:17:00.000000');
INSERT INTO "trial_states" VALUES(18,'0a1b2c3d',9,'running',1,'2026-01-01 12:18:00.000000');
INSERT INTO "trial_states" VALUES(19,'0a1b2c3d',9,'inconclusive',1,'2026-01-01 12:19:00.000000');
INSERT INTO "trial_states" VALUES(20,'0a1b2c3d',10,'running',1,'2026-01-01 12:20:00.000000');
INSERT INTO "trial_states" VALUES(21,'0a1b2c3d',10,'completed',1,'2026-01-01 12:21:00.000000');
INSERT INTO "trial_states" VALUES(22,'0a1b2c3d',11,'running',1,'2026-01-01 12:22:00.000000');
INSERT INTO "trial_states" VALUES(23,'0a1b2c3d',11,'completed',1,'2026-01-01 12:23:00.000000');
INSERT INTO "trial_states" VALUES(24,'9f8e7d6c',1,'running',1,'2026-01-01 12:41:00.000000');
INSERT INTO "trial_states" VALUES(25,'9f8e7d6c',1,'completed',1,'2026-01-01 12:42:00.000000');
INSERT INTO "trial_states" VALUES(26,'9f8e7d6c',2,'running',1,'2026-01-01 12:43:00.000000');
INSERT INTO "trial_states" VALUES(27,'5c5c5c5c',1,'running',1,'2026-01-01 12:44:00.000000');
INSERT INTO "trial_states" VALUES(28,'5c5c5c5c',1,'completed',1,'2026-01-01 12:45:00.000000');
INSERT INTO "trial_states" VALUES(29,'5c5c5c5c',2,'running',1,'2026-01-01 12:44:00.000000');
INSERT INTO "trial_states" VALUES(30,'5c5c5c5c',2,'completed',1,'2026-01-01 12:45:00.000000');
INSERT INTO "trial_states" VALUES(31,'5c5c5c5c',3,'running',1,'2026-01-01 12:46:00.000000');
INSERT INTO "trial_states" VALUES(32,'5c5c5c5c',3,'completed',1,'2026-01-01 12:47:00.000000');
INSERT INTO "trial_states" VALUES(33,'7e7e7e7e',1,'running',1,'2026-01-01 12:49:00.000000');
INSERT INTO "trial_states" VALUES(34,'7e7e7e7e',1,'completed',1,'2026-01-01 12:50:00.000000');
CREATE TABLE trials (
	study_id VARCHAR NOT NULL, 
	number BIGINT NOT NULL, 
	setting JSON NOT NULL, 
	phase VARCHAR NOT NULL, 
	context JSON NOT NULL, 
	state VARCHAR NOT NULL, 
	attempt BIGINT NOT NULL, 
	started_at DATETIME NOT NULL, 
	ended_at DATETIME, 
	why VARCHAR NOT NULL, 
	broke VARCHAR, 
	reason VARCHAR NOT NULL, device_id VARCHAR, "plan" JSON, 
	CONSTRAINT pk_trials PRIMARY KEY (study_id, number), 
	CONSTRAINT fk_trials_study_id FOREIGN KEY(study_id) REFERENCES studies (id) ON DELETE CASCADE
);
INSERT INTO "trials" VALUES('0a1b2c3d',1,'{"gpu.clock_mhz": 1000, "batch_size": 1}','baseline','{}','completed',1,'2026-01-01 12:02:00.000000','2026-01-01 12:03:00.000000','baseline at {}',NULL,'',NULL,NULL);
INSERT INTO "trials" VALUES('0a1b2c3d',2,'{"gpu.clock_mhz": 1000, "batch_size": 1}','baseline','{}','completed',1,'2026-01-01 12:04:00.000000','2026-01-01 12:05:00.000000','baseline at {}',NULL,'',NULL,NULL);
INSERT INTO "trials" VALUES('0a1b2c3d',3,'{"gpu.clock_mhz": 800, "batch_size": 1}','tuning','{}','completed',1,'2026-01-01 12:06:00.000000','2026-01-01 12:07:00.000000','tuning at {}',NULL,'',NULL,NULL);
INSERT INTO "trials" VALUES('0a1b2c3d',4,'{"gpu.clock_mhz": 600, "batch_size": 1}','tuning','{"requests_in_system": 2.0}','completed',1,'2026-01-01 12:08:00.000000','2026-01-01 12:09:00.000000','tuning at {''requests_in_system'': 2.0}',NULL,'',NULL,NULL);
INSERT INTO "trials" VALUES('0a1b2c3d',5,'{"gpu.clock_mhz": 400, "batch_size": 1}','tuning','{"requests_in_system": 4.0}','completed',1,'2026-01-01 12:10:00.000000','2026-01-01 12:11:00.000000','tuning at {''requests_in_system'': 4.0}','latency_p99_ms <= 120.0','latency_p99_ms was 200, the limit is <= 120',NULL,NULL);
INSERT INTO "trials" VALUES('0a1b2c3d',6,'{"gpu.clock_mhz": 400, "batch_size": 2}','tuning','{}','failed',1,'2026-01-01 12:12:00.000000','2026-01-01 12:13:00.000000','tuning at {}',NULL,'no such clock',NULL,NULL);
INSERT INTO "trials" VALUES('0a1b2c3d',7,'{"gpu.clock_mhz": 800, "batch_size": 2}','tuning','{}','aborted',1,'2026-01-01 12:14:00.000000','2026-01-01 12:15:00.000000','tuning at {}',NULL,'paused by ann',NULL,NULL);
INSERT INTO "trials" VALUES('0a1b2c3d',8,'{"gpu.clock_mhz": 800, "batch_size": 4}','tuning','{}','contaminated',2,'2026-01-01 12:16:00.000000','2026-01-01 12:17:00.000000','tuning at {}',NULL,'foreign',NULL,NULL);
INSERT INTO "trials" VALUES('0a1b2c3d',9,'{"gpu.clock_mhz": 600, "batch_size": 4}','tuning','{}','inconclusive',1,'2026-01-01 12:18:00.000000','2026-01-01 12:19:00.000000','tuning at {}',NULL,'40 requests in the longest window',NULL,NULL);
INSERT INTO "trials" VALUES('0a1b2c3d',10,'{"gpu.clock_mhz": 600, "batch_size": 1}','confirming','{"requests_in_system": 2.0}','completed',1,'2026-01-01 12:20:00.000000','2026-01-01 12:21:00.000000','confirming at {''requests_in_system'': 2.0}',NULL,'',NULL,NULL);
INSERT INTO "trials" VALUES('0a1b2c3d',11,'{"gpu.clock_mhz": 1000, "batch_size": 1}','confirming','{"requests_in_system": 2.0}','completed',1,'2026-01-01 12:22:00.000000','2026-01-01 12:23:00.000000','confirming at {''requests_in_system'': 2.0}',NULL,'',NULL,NULL);
INSERT INTO "trials" VALUES('9f8e7d6c',1,'{"gpu.clock_mhz": 1000, "batch_size": 1}','baseline','{}','completed',1,'2026-01-01 12:41:00.000000','2026-01-01 12:42:00.000000','baseline at {}',NULL,'',NULL,NULL);
INSERT INTO "trials" VALUES('9f8e7d6c',2,'{"gpu.clock_mhz": 800, "batch_size": 1}','tuning','{"requests_in_system": 2.0}','running',1,'2026-01-01 12:43:00.000000',NULL,'one step down',NULL,'',NULL,NULL);
INSERT INTO "trials" VALUES('5c5c5c5c',1,'{"gpu.clock_mhz": 800, "batch_size": 1}','tuning','{}','completed',1,'2026-01-01 12:44:00.000000','2026-01-01 12:45:00.000000','its own',NULL,'','sim3@edge',NULL);
INSERT INTO "trials" VALUES('5c5c5c5c',2,'{"gpu.clock_mhz": 600, "batch_size": 1}','tuning','{}','completed',1,'2026-01-01 12:44:00.000000','2026-01-01 12:45:00.000000','its own',NULL,'','sim4@edge',NULL);
INSERT INTO "trials" VALUES('5c5c5c5c',3,'{"gpu.clock_mhz": 800, "batch_size": 1}','confirming','{}','completed',1,'2026-01-01 12:46:00.000000','2026-01-01 12:47:00.000000','the table',NULL,'',NULL,'{"rows": [{"below": 2.0, "setting": {"gpu.clock_mhz": 800, "batch_size": 1}, "gain": 1.0, "at": null}, {"below": null, "setting": {"gpu.clock_mhz": 1000, "batch_size": 1}, "gain": 1.0, "at": null}], "by": "requests_in_system", "hysteresis": 0.1, "eager": false}');
INSERT INTO "trials" VALUES('7e7e7e7e',1,'{"gpu.clock_mhz": 1000, "batch_size": 1}','baseline','{}','completed',1,'2026-01-01 12:49:00.000000','2026-01-01 12:50:00.000000','baseline',NULL,'',NULL,NULL);
CREATE TABLE window_samples (
	measurement_id INTEGER NOT NULL, 
	document BLOB NOT NULL, 
	CONSTRAINT pk_window_samples PRIMARY KEY (measurement_id), 
	CONSTRAINT fk_window_samples_measurement_id FOREIGN KEY(measurement_id) REFERENCES measurements (id) ON DELETE CASCADE
);
INSERT INTO "window_samples" VALUES(26,X'789C5D90DD0AC3200C85DFC5EB5074AB6CEBAB8C529CCD5A37A7D05AC6287DF7C59F32981762CEF972125C99B65E3FBB993557C179C54108BA5B606F656D964FBC9CE896A240336AEFFA48455346201BC10765495F193A9C864FF7284CCD2B09E70C9980AFBDF72053421CD26EC0A6C59173A70CA44205E3FFC37EEF3D0844EEB52AA0D3067387D26397A6A4AD060C234EAC211418F603CED94CD3D30710A6FDE242548F9CC48B0449E2CD38877DD969DBBED4E75B47');
CREATE TABLE workload_versions (
	workload VARCHAR NOT NULL, 
	version VARCHAR NOT NULL, 
	first_seen_at DATETIME NOT NULL, 
	CONSTRAINT pk_workload_versions PRIMARY KEY (workload, version)
);
INSERT INTO "workload_versions" VALUES('inference','1','2026-01-01 12:00:00.000000');
CREATE TABLE write_checks (
	id INTEGER NOT NULL, 
	times BIGINT NOT NULL, 
	CONSTRAINT pk_write_checks PRIMARY KEY (id)
);
CREATE UNIQUE INDEX uq_study_devices_active ON study_devices (device_id) WHERE active;
CREATE INDEX ix_trials_started_at ON trials (started_at);
CREATE INDEX ix_trial_states_study_id_trial_number ON trial_states (study_id, trial_number);
CREATE INDEX ix_observations_at ON observations (at);
CREATE INDEX ix_leases_study_id_trial_number ON leases (study_id, trial_number);
CREATE INDEX ix_applied_settings_device_id ON applied_settings (device_id);
CREATE INDEX ix_events_at ON events (at);
CREATE INDEX ix_events_study_id ON events (study_id);
CREATE INDEX ix_events_device_id ON events (device_id);
CREATE INDEX ix_audit_at ON audit (at);
CREATE INDEX ix_study_devices_device_id ON study_devices (device_id);
CREATE INDEX ix_trials_running ON trials (study_id) WHERE state = 'running';
CREATE INDEX ix_observed_windows_at ON observed_windows (at);
COMMIT;
