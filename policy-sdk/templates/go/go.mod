module least-queued

go 1.24
