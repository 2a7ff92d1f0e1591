"""Programs that speak Sonobuoy's plugin protocol in pods, and the plugins that tests give to them and to Sonobuoy itself."""
